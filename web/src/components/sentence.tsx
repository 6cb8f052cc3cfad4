/** A sentence of the server; what stands between backticks is a name. */
import { Name } from './name';

/** Shows it. */
export function Sentence({ text }: { text: string }) {
  return (
    <>
      {text.split('`').map((piece, at) =>
        at % 2 === 1 ? (
          <code key={at}>
            <Name text={piece} limit={80} />
          </code>
        ) : (
          piece && <Name text={piece} limit={400} />
        ),
      )}
    </>
  );
}
