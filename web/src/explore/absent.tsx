/** A value that is not there. */
export const Absent = () => (
  <span class="absent">
    — <span>absent</span>
  </span>
);
