/** Saving a rule in the server, where it is in force at once, and taking it out again. */
import { useState } from 'preact/hooks';
import { Guarded } from '../components/guarded';
import { errorLine } from '../lib/api';
import { shown } from '../lib/text';
import { tell, tellError } from '../lib/toast';
import { askRuleFile, type Rule, removeRuleFile, saveRuleFile } from './answers';
import type { Alerts } from './model';

/** What files that are saved in the server begin with. */
const SAVED = 'saved/';
/** Longest name of such a file. */
const NAME_MAX = 64;

/** Where a rule would be saved, what it would stand in for, and why it can't be. */
export interface Saving {
  file: string;
  /** Whether it is saved there already. */
  own: boolean;
  replaces: string[] | undefined;
  refused: string;
}

/** How `rule`, edited to be called `name`, is saved beside the `rules` in force. */
export function savingOf(rule: Rule | null, name: string, rules: Rule[]): Saving {
  const own = rule?.file.startsWith(SAVED) ?? false;
  const word = name.replace(/[^\w-]+/g, '_').replace(/^[_-]+/, '');
  const file = own ? (rule as Rule).file.slice(SAVED.length) : `${word.slice(0, NAME_MAX) || 'rule'}`;
  const beside = rules.filter((r) => own && r.file === rule?.file);
  if (beside.length > 1) {
    const refused = `its file has ${beside.length} rules: change it with truegauge rules save`;
    return { file, own, replaces: undefined, refused };
  }
  if (own || rule === null || name !== rule.name) return { file, own, replaces: undefined, refused: '' };
  const same = rules.filter((r) => r.name === name);
  const refused = same.length > 1 ? `${same.length} rules have this name: give it another one` : '';
  return { file, own, replaces: [name], refused };
}

/** The buttons, with what they would do. */
export function RuleSave(props: {
  page: Alerts;
  rule: Rule | null;
  name: string;
  yaml: string;
  disabled: boolean;
  close: () => void;
}) {
  const { page, rule, name, yaml, close } = props;
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const saving = savingOf(rule, name, page.rules.value);
  const run = async (act: () => Promise<void>) => {
    setBusy(true);
    setError(null);
    try {
      await act();
      close();
      await page.load();
    } catch (reason) {
      setError(reason);
    } finally {
      setBusy(false);
    }
  };
  const save = () =>
    run(async () => {
      const { file, replaces } = saving;
      await saveRuleFile(file, replaces === undefined ? { text: yaml } : { text: yaml, replaces });
      tell(`${shown(name, 40)} is saved and in force`);
    });
  const remove = () =>
    run(async () => {
      const { text, tests, replaces } = await askRuleFile(saving.file);
      await removeRuleFile(saving.file);
      tell(`${shown(name, 40)} is removed`, () => {
        saveRuleFile(saving.file, { text, tests: tests ?? '', replaces }).then(
          () => page.load(),
          (reason: unknown) => tellError('cannot put the rule back', reason),
        );
      });
    });
  return (
    <>
      {error !== null && (
        <p class="crit" role="alert">
          {errorLine(error)}
        </p>
      )}
      {saving.refused && <p class="warning">Can’t be saved here: {saving.refused}</p>}
      <div class="saving">
        <Guarded
          class="control"
          disabled={props.disabled || busy || saving.refused !== ''}
          act={() => void save()}
        >
          Save
        </Guarded>
        {saving.own && (
          <Guarded class="control" disabled={busy || saving.refused !== ''} act={() => void remove()}>
            Delete
          </Guarded>
        )}
        <span class="quiet">
          in force at once
          {saving.replaces && rule ? `, in place of the one in ${shown(rule.file, 60)}` : ''}
        </span>
      </div>
    </>
  );
}
