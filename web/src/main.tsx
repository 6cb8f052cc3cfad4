/** Starts the page. */
import { render } from 'preact';
import { App } from './app';
import { press } from './lib/keys';
import './styles/tokens.css';
import './styles/base.css';
import './styles/shell.css';
import './styles/runs.css';
import './styles/charts.css';

document.addEventListener('keydown', press);
render(<App />, document.getElementById('app')!);
