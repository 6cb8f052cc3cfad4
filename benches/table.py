"""A measured figure beside its bar, and the table of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Row:
    """One line of the table."""

    what: str
    ours: float
    unit: str
    against: str
    peer: float | None
    bar: float
    """Largest allowed ours / peer, or the largest allowed value where there is no peer."""

    @property
    def ratio(self) -> float:
        """Ours over the peer's, or over the bar where there is no peer."""
        return self.ours / (self.peer if self.peer is not None else self.bar)

    @property
    def holds(self) -> bool:
        """Whether the bar is met."""
        return self.ratio <= (self.bar if self.peer is not None else 1)


def show(rows: list[Row]) -> None:
    """Prints the table."""
    print(f"{'what':<66} {'ours':>12} {'against':>18} {'theirs':>12} {'ratio':>8} {'bar':>8}")
    for row in rows:
        theirs = f"{row.peer:,.3g} {row.unit}" if row.peer is not None else f"{row.bar:,.3g} {row.unit}"
        bar = f"{row.bar:.3g}" if row.peer is not None else "1"
        verdict = "" if row.holds else "  SHORT"
        ours = f"{row.ours:,.3g} {row.unit}"
        figures = f"{ours:>12} {row.against:>18} {theirs:>12} {row.ratio:>8.3f} {bar:>8}"
        print(f"{row.what:<66} {figures}{verdict}")
