//! The live view. Drawing is ratatui's; this says what stands where.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Clear, Paragraph, Row, Table, Wrap};
use ratatui::{DefaultTerminal, Frame};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::cells::{
    BUSY_CAVEAT, GPU_COLUMNS, PROCESS_COLUMNS, gpu_cells, no_gpus, node_lines, process_cells,
};
use super::collector::Collector;
use super::snapshot::{Gpu, Process, Snapshot, Sort, sort};
use crate::args::Done;
use crate::output::{Failure, printable};
use crate::run::signals::Signals;
use crate::table::time;

/// Longest wait for a key: a signal that asks to end is seen this late at most.
const WAIT_MAX: Duration = Duration::from_millis(200);
/// Largest terminal that is drawn on, cells; what says that it has more has no room in memory.
const CELLS_MAX: u32 = 1 << 20;
/// Share of a limit from which it is coloured.
const NEARLY_FULL: f64 = 0.9;

/// Widths of the columns; the last of the processes takes what is left.
const GPU_WIDTHS: [u16; 10] = [3, 4, 6, 4, 9, 9, 10, 3, 14, 4];
const PROCESS_WIDTHS: [u16; 7] = [7, 6, 10, 5, 10, 16, 0];

/// What the keys changed.
struct State {
    sort: Sort,
    is_paused: bool,
    shows_help: bool,
    has_colour: bool,
}

impl State {
    fn colour(&self, colour: Color) -> Style {
        if self.has_colour { Style::new().fg(colour) } else { Style::new() }
    }

    /// For what is there and means little.
    fn faint(&self) -> Style {
        if self.has_colour { self.colour(Color::DarkGray) } else { Style::new().add_modifier(Modifier::DIM) }
    }
}

/// What a key asks for.
enum Wish {
    Quit,
    Redraw,
}

/// Shows the machine until somebody quits.
pub(super) fn run(interval: Duration, sort: Sort) -> Done {
    if !(io::stdout().is_terminal() && io::stdin().is_terminal()) {
        return Err(Failure::new("cannot draw: this is no terminal")
            .hint("`--once` prints a table, `--json` the same for programs"));
    }
    if std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
        return Err(Failure::new("cannot draw: `TERM` is `dumb`, a terminal that has no positions")
            .hint("`--once` prints a table; in a terminal that can more, set `TERM` to its name"));
    }
    check_size().map_err(|error| cannot_draw(&error))?;
    // Before any thread is made: signals then come through the descriptor, between two drawings.
    let signals = Signals::take().map_err(|error| Failure::new(format!("cannot take signals: {error}")))?;
    let has_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut state = State { sort, is_paused: false, shows_help: false, has_colour };
    let mut collector = Collector::new();
    // Sets a hook too that gives the terminal back before a panic is told.
    end_with_the_terminal().map_err(|error| cannot_draw(&error))?;
    let mut terminal = ratatui::try_init().map_err(|error| cannot_draw(&error))?;
    let outcome = show(&mut terminal, &mut collector, &mut state, (interval, &signals));
    ratatui::try_restore().map_err(|error| cannot_draw(&error))?;
    outcome.map_err(|error| cannot_draw(&error))?;
    Ok(ExitCode::SUCCESS)
}

/// Ends this process when its terminal is gone: whoever waits for the keys of one that has hung up finds it
/// ready for ever, and nothing of it is left to be given back.
#[expect(clippy::exit, reason = "the thread that draws may be caught in that wait")]
fn end_with_the_terminal() -> io::Result<()> {
    let keys = io::stdin().as_fd().try_clone_to_owned()?;
    let watch = move || {
        // Nothing but the end of it is waited for.
        while let Err(rustix::io::Errno::INTR) =
            poll(&mut [PollFd::from_borrowed_fd(keys.as_fd(), PollFlags::empty())], None::<&Timespec>)
        {
        }
        std::process::exit(0);
    };
    std::thread::Builder::new().name("truegauge-hangup".into()).spawn(watch).map(drop)
}

/// Fails on a terminal of a size that nobody sits at.
fn check_size() -> io::Result<()> {
    let (columns, rows) = ratatui::crossterm::terminal::size()?;
    if u32::from(columns) * u32::from(rows) > CELLS_MAX {
        return Err(io::Error::other(format!("it says that it has {columns} columns and {rows} rows")));
    }
    Ok(())
}

fn cannot_draw(error: &io::Error) -> Failure {
    Failure::new(format!("cannot draw on the terminal: {error}"))
}

fn show(
    terminal: &mut DefaultTerminal,
    collector: &mut Collector,
    state: &mut State,
    (interval, signals): (Duration, &Signals),
) -> io::Result<()> {
    let mut snapshot = collector.look(state.sort);
    let mut next = Instant::now() + interval;
    terminal.draw(|frame| draw(frame, &snapshot, state))?;
    loop {
        if signals.wants_out() {
            return Ok(());
        }
        let left = next.saturating_duration_since(Instant::now());
        let mut is_changed = false;
        if event::poll(if state.is_paused { WAIT_MAX } else { left.min(WAIT_MAX) })? {
            match wish(&event::read()?, state, &mut snapshot) {
                Some(Wish::Quit) => return Ok(()),
                wish => is_changed = wish.is_some(),
            }
        }
        if !state.is_paused && Instant::now() >= next {
            snapshot = collector.look(state.sort);
            // After a machine that slept or a look that took long there is one look, not many.
            next = (next + interval).max(Instant::now());
            is_changed = true;
        }
        if is_changed {
            check_size()?;
            terminal.draw(|frame| draw(frame, &snapshot, state))?;
        }
    }
}

/// What an event asks for.
fn wish(event: &Event, state: &mut State, snapshot: &mut Snapshot) -> Option<Wish> {
    let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event else {
        return matches!(event, Event::Resize(..)).then_some(Wish::Redraw);
    };
    match code {
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return Some(Wish::Quit),
        KeyCode::Char('q') => return Some(Wish::Quit),
        KeyCode::Esc if !state.shows_help => return Some(Wish::Quit),
        KeyCode::Char('c') => state.sort = Sort::Cpu,
        KeyCode::Char('m') => state.sort = Sort::Memory,
        KeyCode::Char('g') => state.sort = Sort::GpuMemory,
        KeyCode::Char(' ' | 'p') => state.is_paused = !state.is_paused,
        KeyCode::Char('?' | 'h') => state.shows_help = !state.shows_help,
        _ => state.shows_help = false,
    }
    sort(&mut snapshot.processes, state.sort);
    Some(Wish::Redraw)
}

fn draw(frame: &mut Frame<'_>, snapshot: &Snapshot, state: &State) {
    let rows = u16::try_from(snapshot.gpus.len()).unwrap_or(u16::MAX);
    // Head and caveat around the cards; the reason and what to do where there are none.
    let gpus = if rows == 0 { 4 } else { rows.saturating_add(2).min(frame.area().height / 2) };
    let parts = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(3),
        Constraint::Length(gpus),
        Constraint::Min(0),
        Constraint::Length(1),
    ]);
    let [head, node, cards, processes, foot] = parts.areas(frame.area());
    draw_head(frame, head, snapshot, state);
    frame.render_widget(Text::from_iter(node_text(snapshot, state)), node);
    draw_gpus(frame, cards, snapshot, state);
    draw_processes(frame, processes, snapshot, state);
    let keys = "q quit  c m g sort  space pause  ? help";
    frame.render_widget(Line::styled(keys, state.faint()), foot);
    if state.shows_help {
        draw_help(frame, frame.area());
    }
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot, state: &State) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut spans = vec![Span::styled(format!("truegauge top  {}", printable(&snapshot.host)), bold)];
    spans.push(Span::raw(format!("  {} UTC", time(snapshot.time_ms))));
    spans.push(Span::styled(
        format!("  this costs {} % of a core", fine_percent(snapshot.own_cpu_ratio)),
        state.faint(),
    ));
    if state.is_paused {
        spans.push(Span::styled("  paused", state.colour(Color::Yellow)));
    }
    frame.render_widget(Line::from(spans), area);
}

fn fine_percent(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.1}", ratio * 100.0))
}

fn node_text(snapshot: &Snapshot, state: &State) -> Vec<Line<'static>> {
    let ratios = [snapshot.cpu.busy_ratio, snapshot.memory.used_ratio, None];
    let lines = node_lines(snapshot).into_iter().zip(ratios);
    lines
        .map(|(line, ratio)| {
            let is_full = ratio.is_some_and(|ratio| ratio >= NEARLY_FULL);
            Line::styled(printable(&line), if is_full { state.colour(Color::Red) } else { Style::new() })
        })
        .collect()
}

fn heads(columns: &[(&'static str, bool)]) -> Row<'static> {
    let cells = columns.iter().map(|(head, is_number)| aligned((*head).to_owned(), *is_number));
    Row::new(cells).style(Style::new().add_modifier(Modifier::BOLD))
}

fn aligned(text: String, is_number: bool) -> Cell<'static> {
    let alignment = if is_number { Alignment::Right } else { Alignment::Left };
    Cell::new(Line::from(printable(&text)).alignment(alignment))
}

fn draw_gpus(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot, state: &State) {
    if snapshot.gpus.is_empty() {
        // Two lines each: a long reason must not push out what to do about it.
        let parts = Layout::vertical([Constraint::Max(2), Constraint::Min(0)]).areas::<2>(area);
        for (line, part) in no_gpus(snapshot).lines().zip(parts) {
            let text = Paragraph::new(printable(line)).wrap(Wrap { trim: true });
            frame.render_widget(text.style(state.faint()), part);
        }
        return;
    }
    let [table, caveat] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(area);
    let rows = snapshot.gpus.iter().map(|gpu| gpu_row(gpu, state));
    let drawn =
        Table::new(rows, GPU_WIDTHS.map(Constraint::Length)).header(heads(&GPU_COLUMNS)).column_spacing(1);
    frame.render_widget(drawn, table);
    frame.render_widget(Line::styled(BUSY_CAVEAT, state.faint()), caveat);
}

fn gpu_row(gpu: &Gpu, state: &State) -> Row<'static> {
    let nearly = |ratio: Option<f64>| ratio.is_some_and(|ratio| ratio >= NEARLY_FULL);
    let memory = gpu.memory_used_bytes.zip(gpu.memory_total_bytes).map(|(used, total)| used / total);
    // Power alone is what a card at full load is held back by.
    let is_held_back = gpu.held_back_by.iter().any(|word| *word != "sw_power");
    let cells =
        gpu_cells(gpu).into_iter().zip(GPU_COLUMNS).enumerate().map(|(at, (text, (_, is_number)))| {
            let style = match at {
                6 if nearly(memory) => state.colour(Color::Red),
                8 if is_held_back || !gpu.trouble.is_empty() => state.colour(Color::Yellow),
                9 => state.faint(),
                _ => Style::new(),
            };
            aligned(text, is_number).style(style)
        });
    Row::new(cells.collect::<Vec<_>>())
}

fn draw_processes(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot, state: &State) {
    let shown = usize::from(area.height.saturating_sub(1));
    let rows = snapshot.processes.iter().take(shown).map(|process| process_row(process, state));
    let mut widths = PROCESS_WIDTHS.map(Constraint::Length);
    widths[6] = Constraint::Fill(1);
    frame.render_widget(Table::new(rows, widths).header(heads(&PROCESS_COLUMNS)).column_spacing(1), area);
}

fn process_row(process: &Process, state: &State) -> Row<'static> {
    let cells = process_cells(process).into_iter().zip(PROCESS_COLUMNS).enumerate();
    Row::new(
        cells
            .map(|(at, (text, (_, is_number)))| {
                let style = if at == 5 { state.colour(Color::Cyan) } else { Style::new() };
                aligned(text, is_number).style(style)
            })
            .collect::<Vec<_>>(),
    )
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let text = "\
q, Esc   quit
c        processes by CPU
m        processes by memory
g        processes by GPU memory
space    pause
?        close this

SM %     share of time in which the multiprocessors had work
TENSOR   the same of the tensor cores: this is what training pays for
DRAM     the same of the card's memory
POWER W  drawn, and allowed
HELD     what keeps the clock down now; sw_power alone is normal
busy     some kernel ran at all: the driver's utilization

CPU and memory are those of this program's cgroup limits, as a run reports them.
A dash is not known, which is not 0.";
    let height = u16::try_from(text.lines().count()).unwrap_or(u16::MAX);
    let width = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let width = u16::try_from(width).unwrap_or(u16::MAX).saturating_add(4).min(area.width);
    let height = height.saturating_add(2).min(area.height);
    let place =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    let block = ratatui::widgets::Block::bordered().title(" help ");
    frame.render_widget(Paragraph::new(text).block(block).wrap(Wrap { trim: false }), place);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::snapshot::Driver;
    use super::*;

    fn drawn(width: u16, height: u16, snapshot: &Snapshot, shows_help: bool) -> String {
        let state = State { sort: Sort::Cpu, is_paused: false, shows_help, has_colour: false };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, snapshot, &state)).unwrap();
        terminal.backend().to_string()
    }

    fn eight() -> Snapshot {
        let gpu = |index: u32| Gpu {
            index,
            sm_active_ratio: Some(0.41),
            power_watts: Some(612.0),
            power_limit_watts: Some(700.0),
            sm_clock_hertz: Some(1.755e9),
            sm_clock_max_hertz: Some(1.98e9),
            memory_used_bytes: Some(7.5e10),
            memory_total_bytes: Some(8.5e10),
            held_back_by: vec!["sw_power"],
            busy_ratio: Some(1.0),
            ..Gpu::default()
        };
        let process = |pid: u32| Process { pid, name: format!("p{pid}"), ..Process::default() };
        Snapshot {
            driver: Driver::Loaded("570.86".into()),
            gpus: (0..8).map(gpu).collect(),
            processes: (1..500).map(process).collect(),
            ..Snapshot::default()
        }
    }

    #[test]
    fn everything_that_matters_fits_into_80_by_24() {
        let text = drawn(80, 24, &eight(), false);
        for wanted in ["SM %", "612/700", "1755/1980", "69.8/79.2", "sw_power", "busy", "p1", "q quit"] {
            assert!(text.contains(wanted), "{wanted}\n{text}");
        }
        assert!(text.lines().any(|line| line.contains("sw_power") && line.contains(" 100")), "{text}");
    }

    #[test]
    fn any_size_can_be_drawn_with_and_without_help_and_gpus() {
        let absent =
            Driver::Absent { reason: "no_library", text: "cannot find it".into(), hint: "install it" };
        let none = Snapshot { driver: absent, ..Snapshot::default() };
        for (width, height) in [(1, 1), (20, 5), (80, 24), (200, 60), (500, 3)] {
            for help in [false, true] {
                drawn(width, height, &eight(), help);
                drawn(width, height, &none, help);
            }
        }
        let text = drawn(80, 24, &none, false);
        assert!(text.contains("GPUs: cannot find it") && text.contains("hint: install it"), "{text}");
    }
}
