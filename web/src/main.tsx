/** Starts the page. */
import { render } from 'preact';
import { App } from './app';
import { startClock } from './lib/clock';
import { press } from './lib/keys';
import './styles/tokens.css';
import './styles/base.css';
import './styles/shell.css';
import './styles/runs.css';
import './styles/charts.css';
import './styles/health.css';

document.addEventListener('keydown', press);
startClock();
render(<App />, document.getElementById('app')!);
