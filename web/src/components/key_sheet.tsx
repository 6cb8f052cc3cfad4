/** The sheet of keys, written by the registry that binds them. */
import { bound, lettersOn, sheetOpen, switchLetters } from '../lib/keys';
import { Dialog } from './dialog';

const SPELLED: Record<string, string> = {
  ArrowLeft: '←',
  ArrowRight: '→',
  Escape: 'Esc',
  'Shift+ArrowLeft': 'Shift ←',
  'Shift+ArrowRight': 'Shift →',
};

/** Shows itself while it is open. */
export function KeySheet() {
  if (!sheetOpen.value) return null;
  const groups = Map.groupBy(bound(), (b) => b.group);
  return (
    <Dialog title="Keys" class="key-sheet" close={() => (sheetOpen.value = false)}>
      <div class="key-groups">
        {[...groups].map(([group, all]) => (
          <section key={group}>
            <h3>{group}</h3>
            <dl>
              {all.map((b) => (
                <div key={b.keys}>
                  <dt>
                    {b.keys.split(' ').map((k) => (
                      <kbd key={k}>{SPELLED[k] ?? k}</kbd>
                    ))}
                  </dt>
                  <dd>{b.does}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
      <label class="check">
        <input
          type="checkbox"
          checked={lettersOn.value}
          onChange={(e) => switchLetters(e.currentTarget.checked)}
        />
        Single letters act
      </label>
    </Dialog>
  );
}
