/** The three lines that start a run here. */
import { copy } from '../lib/download';

/** Python that sends to this server. */
export function pythonLines(origin: string): string {
  return `export TRUEGAUGE_URL=${origin}\nexport TRUEGAUGE_TOKEN=            # only when this server has a token`;
}

const PYTHON = `import truegauge as tg
run = tg.init(project_name="my-project")
tg.log({"loss": 0.5}, step=0)`;

/** The lines with a button that copies them. */
export function Snippet() {
  const shell = pythonLines(window.location.origin);
  return (
    <div class="snippet">
      <Block title="Where to send, in the shell" text={shell} />
      <Block title="Three lines of Python" text={PYTHON} />
    </div>
  );
}

/** Text with its title and a button that copies it. */
export function Block({ title, text }: { title: string; text: string }) {
  return (
    <figure>
      <figcaption>
        {title}
        <button type="button" onClick={() => copy(text, title.toLowerCase())}>
          Copy
        </button>
      </figcaption>
      <pre>
        <code>{text}</code>
      </pre>
    </figure>
  );
}
