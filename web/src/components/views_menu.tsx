/** Named views of the list of runs. */
import { useState } from 'preact/hooks';
import { param, setParams } from '../lib/address';
import { shown } from '../lib/text';
import { tell } from '../lib/toast';
import { forgetView, sameView, saveView, VIEW_PARAMS, type View, views } from '../lib/views';
import { Dialog } from './dialog';
import { Menu, type MenuItem } from './menu';

/** What the address shows now. */
const now = () => Object.fromEntries(VIEW_PARAMS.map((key) => [key, param(key)]));

const show = (view: View) =>
  setParams(Object.fromEntries(VIEW_PARAMS.map((key) => [key, view.params[key] ?? null])));

/** Chooses, keeps and forgets views. */
export function ViewsMenu() {
  const [naming, setNaming] = useState(false);
  const current = views.value.find((view) => sameView(view.params, now()));
  const items = (): MenuItem[] => [
    ...views.value.map((view) => ({
      text: shown(view.name),
      checked: view.name === current?.name,
      run: () => show(view),
    })),
    ...(current
      ? [{ text: `Forget ${shown(current.name, 24)}`, run: () => forgetView(current.name) }]
      : [{ text: 'Save this view …', run: () => setNaming(true) }]),
  ];
  return (
    <>
      <Menu label="Views" named items={items} class="as-control">
        {current ? shown(current.name, 24) : 'Views'} <span aria-hidden="true">▾</span>
      </Menu>
      {naming && <NameDialog close={() => setNaming(false)} />}
    </>
  );
}

function NameDialog({ close }: { close: () => void }) {
  const [name, setName] = useState('');
  const keep = (event: Event) => {
    event.preventDefault();
    saveView({ name: name.trim(), params: now() });
    tell(`Saved ${shown(name.trim())} in this browser`);
    close();
  };
  return (
    <Dialog title="Save this view" close={close}>
      <form class="name-view" onSubmit={keep}>
        <input
          class="control"
          required
          pattern=".*\S.*"
          maxLength={60}
          aria-label="Name of the view"
          placeholder="Name"
          value={name}
          onInput={(e) => setName(e.currentTarget.value)}
        />
        <button type="submit" class="primary">
          Save
        </button>
      </form>
      <p class="quiet">
        Filter, state, order, columns and metric are kept in this browser; the address shares them.
      </p>
    </Dialog>
  );
}
