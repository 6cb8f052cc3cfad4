//! Series under canonical names, made beside the originals as they come in.
//!
//! An original is looked up once; from then on its number leads to its *route*: which canonical series it
//! gives, and how. Everything that is made of a batch is stored in the same commit as the batch. The originals
//! stay as they came. What names mean is the vocabulary's (`routes`); which name of several counts is decided
//! in `topics`, which original gives a series in `targets`; who reports a card and what it has burnt is in
//! `cards`.

mod cards;
mod numbers;
mod routes;
mod tally;
mod targets;
mod topics;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::{Labels, Sample, SeriesIdentity, is_stale_marker};
use semconv::vocabulary::{Hit, Of, Value, Vocabulary, VocabularyError};
use store::{Batch, ReadError, Receipt, SeriesId, Store};

use crate::clock::now_ns;
use crate::files::{self, SMALL_BYTES_MAX};

use cards::{CardAt, Cards, METER_ROWS};
pub(crate) use numbers::{Known, Numbers};
use routes::Use;
use tally::Tally;
use targets::{Fate, Original, Page, TargetAt, Targets};
use topics::{TopicAt, Topics};

/// Most canonical series and routes that are kept in mind. At the bound everything is looked up anew.
const KEPT_MAX: usize = 2_000_000;

/// Whose samples a batch holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A node's agent: its series have canonical names already.
    Agent,
    /// Anybody else: the names are the sender's.
    Elsewhere,
    /// Anybody who sends OpenTelemetry, processes of runs among them.
    Telemetry,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Canon {
    vocabulary: Vocabulary,
    inner: Mutex<Inner>,
    tally: Tally,
}

#[derive(Debug, Default)]
struct Inner {
    routes: Vec<Route>,
    numbers: Numbers,
    /// The same for an agent's series, whose names are canonical.
    own_numbers: Numbers,
    targets: Targets,
    topics: Topics,
    cards: Cards,
    hasher: foldhash::fast::RandomState,
    /// Whether there are routes whose ranks were not noted.
    is_new: bool,
}

/// What an original gives.
#[derive(Debug)]
struct Route {
    page: Page,
    original: Original,
    card: Option<CardAt>,
    /// Host and index of the card, as a hash.
    name: u64,
    ways: Box<[Way]>,
}

/// One canonical series that an original gives.
#[derive(Debug)]
struct Way {
    target: TargetAt,
    topic: TopicAt,
    rank: u16,
    hit: Hit,
    used: Use,
    /// The series that says that there is no value, once it was needed; `None` where there is none.
    unsupported: Option<Cell<Option<TargetAt>>>,
}

impl Way {
    /// The series that says that there is no value, where it was ever needed.
    fn told_unsupported(&self) -> Option<TargetAt> {
        self.unsupported.as_ref().and_then(Cell::get)
    }
}

/// What was left out of a batch, and why.
#[derive(Debug, Default)]
struct Left {
    duplicate: u64,
    agent: u64,
    unsupported: u64,
    nan: u64,
    late: u64,
    ahead: u64,
    odd: BTreeMap<(CardAt, &'static str), u64>,
}

/// Why names can't be made sense of.
#[derive(Debug, thiserror::Error)]
pub enum CanonError {
    /// A file of the settings can't be read.
    #[error("cannot read the vocabulary `{path}`: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file of the settings can't be used.
    #[error(transparent)]
    Unusable(#[from] VocabularyError),
    /// What was kept of cards can't be read.
    #[error("cannot read what is kept of energy counters: {0}")]
    Store(#[from] ReadError),
}

/// What comes with the program, and the files of the settings.
fn vocabulary(files: &[PathBuf]) -> Result<Vocabulary, CanonError> {
    files.iter().try_fold(Vocabulary::embedded(), |vocabulary, path| {
        let text = files::text(path, SMALL_BYTES_MAX)
            .map_err(|source| CanonError::Unreadable { path: path.clone(), source })?;
        Ok(vocabulary.with(&path.display().to_string(), &text)?)
    })
}

impl Canon {
    /// Begins with the vocabulary and what was kept of cards.
    pub(crate) fn open(vocabulary_files: &[PathBuf], store: &Store) -> Result<Self, CanonError> {
        let vocabulary = vocabulary(vocabulary_files)?;
        let cards = Cards::restore(store.state(METER_ROWS)?);
        let inner = Mutex::new(Inner { cards, ..Inner::default() });
        Ok(Self { vocabulary, inner, tally: Tally::default() })
    }

    /// What names mean.
    pub(crate) fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// What was made and what was left out, for the page `/metrics`.
    pub(crate) fn page(&self, page: &mut String) {
        self.tally.page(page);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what the samples of a batch are under canonical names, and what is to be remembered of them, to
    /// the same batch; returns how many samples were made. Doing it again with the same samples comes to the
    /// same.
    pub(crate) fn apply(&self, store: &Store, origin: Origin, batch: &mut Batch) -> u64 {
        let mut inner = self.lock();
        inner.keep_bounded();
        inner.targets.begin();
        inner.cards.begin(now_ns());
        let mut left = Left::default();
        match origin {
            Origin::Elsewhere | Origin::Telemetry => {
                inner.originals(&self.vocabulary, store, batch, &mut left);
            }
            Origin::Agent => inner.agents(store, batch, &mut left),
        }
        let made = inner.targets.finish(store, batch);
        inner.cards.save(&mut batch.state);
        let odd =
            left.odd.iter().map(|((card, kind), count)| (inner.cards.uuid(*card).to_owned(), *kind, *count));
        let odd: Vec<(String, &'static str, u64)> = odd.collect();
        drop(inner);
        self.tally.add(made as u64, &left, &odd);
        made as u64
    }

    /// Learns what became of a batch.
    pub(crate) fn settled(&self, receipt: &Receipt) {
        if !receipt.gone.is_empty() {
            self.lock().forget_numbers();
        }
    }
}

impl Inner {
    fn keep_bounded(&mut self) {
        if self.routes.len().max(self.targets.len()) > KEPT_MAX {
            self.forget_numbers();
            (self.targets, self.topics) = (Targets::default(), Topics::default());
        }
    }

    /// Forgets what numbers lead to.
    fn forget_numbers(&mut self) {
        (self.numbers, self.own_numbers) = (Numbers::default(), Numbers::default());
        self.routes.clear();
        self.targets.forget_numbers();
    }

    /// Makes canonical series of a batch of anybody's. All routes are found before any is gone, so that the
    /// names that a page has are known.
    fn originals(&mut self, vocabulary: &Vocabulary, store: &Store, batch: &Batch, left: &mut Left) {
        let points = || batch.points.chunk_by(|a, b| a.0 == b.0);
        let mut todo: Vec<(u32, &[(SeriesId, Sample)])> = Vec::new();
        for part in points() {
            let route = self.route_of_number(vocabulary, store, part[0].0);
            todo.extend(route.map(|route| (route, part)));
        }
        let mut named: Vec<(Route, &[Sample])> = Vec::new();
        let mut known: Vec<(u32, &[Sample])> = Vec::new();
        for series in &batch.series {
            match self.route_of_series(vocabulary, store, &series.identity) {
                Found::Nothing => {}
                Found::At(route) => known.push((route, &series.samples)),
                Found::New(route) => named.push((route, &series.samples)),
            }
        }
        // Routes are read while the rest changes.
        let routes = std::mem::take(&mut self.routes);
        let all = || {
            let numbered =
                todo.iter().map(|(route, part)| (&routes[*route as usize], Samples::Numbered(part)));
            let known = known.iter().map(|(route, part)| (&routes[*route as usize], Samples::Plain(part)));
            numbered.chain(known).chain(named.iter().map(|(route, part)| (route, Samples::Plain(part))))
        };
        if !named.is_empty() || std::mem::take(&mut self.topics.is_open) || std::mem::take(&mut self.is_new) {
            for (route, samples) in all() {
                self.note(route, &samples);
            }
        }
        for (route, samples) in all() {
            samples.each(|sample| self.take(vocabulary, route, sample, left));
        }
        self.routes = routes;
    }

    /// Notes which names a page has.
    fn note(&mut self, route: &Route, samples: &Samples<'_>) {
        samples.each(|sample| {
            if !is_stale_marker(sample.value) {
                for way in &route.ways {
                    self.topics.note(way.topic, way.rank, sample.time_ns);
                }
            }
        });
    }

    fn route_of_number(&mut self, vocabulary: &Vocabulary, store: &Store, number: SeriesId) -> Option<u32> {
        match self.numbers.get(number) {
            Known::Nothing => None,
            Known::Route(route) => Some(route),
            Known::No => {
                let labels = store.series(number)?.labels;
                let route = self.route(vocabulary, &labels);
                self.learn(number, route)
            }
        }
    }

    fn route_of_series(
        &mut self,
        vocabulary: &Vocabulary,
        store: &Store,
        identity: &SeriesIdentity,
    ) -> Found {
        if !routes::is_known(vocabulary, identity.labels.metric()) {
            return Found::Nothing;
        }
        match store.series_number(identity) {
            Some(number) => self.route_of_number(vocabulary, store, number).map_or(Found::Nothing, Found::At),
            None => self.route(vocabulary, &identity.labels).map_or(Found::Nothing, Found::New),
        }
    }

    fn learn(&mut self, number: SeriesId, route: Option<Route>) -> Option<u32> {
        let at = route.and_then(|route| {
            self.routes.push(route);
            self.is_new = true;
            u32::try_from(self.routes.len() - 1).ok()
        });
        self.numbers.set(number, at.map_or(Known::Nothing, Known::Route));
        at
    }

    /// Finds out what an original gives.
    fn route(&mut self, vocabulary: &Vocabulary, labels: &Labels) -> Option<Route> {
        let ways = routes::ways(vocabulary, labels);
        let first = ways.first()?;
        let text = |name: &str| labels.get(name).unwrap_or_default();
        let page = self.hasher.hash_one((text("job"), text("instance")));
        let uuid = first.labels.get("uuid").filter(|_| first.of == Of::Gpu);
        let card = match uuid {
            Some(uuid) => Some(self.cards.place(uuid)?),
            None => None,
        };
        let name = self.hasher.hash_one((first.labels.get("host"), first.labels.get("gpu")));
        // A card's facts are its own, whichever page tells them.
        let scope = match first.of {
            Of::Gpu => self.hasher.hash_one((first.labels.get("host"), first.labels.get("gpu"), uuid)),
            Of::Engine => page,
        };
        let told = |labels: &Labels, targets: &Targets| Cell::new(targets.find(&routes::unsupported(labels)));
        let way = |way: routes::Way| Way {
            unsupported: way.is_told_unsupported.then(|| told(&way.labels, &self.targets)),
            target: self.targets.place(way.labels),
            topic: self.topics.place(self.hasher.hash_one((scope, way.group))),
            rank: way.rank,
            hit: way.hit,
            used: way.used,
        };
        let ways = ways.into_iter().map(way).collect();
        Some(Route { page, original: self.hasher.hash_one(labels), card, name, ways })
    }

    /// Takes a sample of an original.
    fn take(&mut self, vocabulary: &Vocabulary, route: &Route, sample: Sample, left: &mut Left) {
        if self.cards.is_ahead(sample.time_ns) {
            left.ahead += 1;
            return;
        }
        let is_of_agent = route.card.is_some_and(|card| self.cards.card(card).is_of_agent(sample.time_ns));
        if is_of_agent {
            left.agent += 1;
            self.hand_over(route, sample.time_ns);
            return;
        }
        if let Some(card) = route.card {
            let card = self.cards.card(card);
            if is_stale_marker(sample.value) {
                card.ends_name(route.name, route.page);
            } else if !card.goes_by(route.name, route.page, sample.time_ns) {
                left.duplicate += 1;
                for way in &route.ways {
                    self.end(route, way, sample.time_ns);
                }
                return;
            }
        }
        for way in &route.ways {
            if is_stale_marker(sample.value) {
                self.topics.ended(way.topic, way.rank);
                self.end(route, way, sample.time_ns);
            } else if !sample.value.is_finite() {
                left.nan += 1;
            } else if self.topics.counts(way.topic, way.rank, sample.time_ns) {
                self.make(vocabulary, route, way, sample, left);
            } else {
                left.duplicate += 1;
                self.end(route, way, sample.time_ns);
            }
        }
    }

    /// Ends what an exporter gave of a card that the agent reports now, where the agent names the card
    /// otherwise and so does not go on with it.
    fn hand_over(&mut self, route: &Route, time_ns: i64) {
        let Some(card) = route.card else { return };
        for way in &route.ways {
            let labels = self.targets.labels(way.target);
            if (labels.get("host"), labels.get("gpu")) != self.cards.named(card) {
                self.end(route, way, time_ns);
            }
        }
    }

    fn end(&mut self, route: &Route, way: &Way, time_ns: i64) {
        self.targets.end(way.target, route.original, time_ns);
        if let Some(unsupported) = way.told_unsupported() {
            self.targets.end(unsupported, route.original, time_ns);
        }
    }

    fn make(&mut self, vocabulary: &Vocabulary, route: &Route, way: &Way, raw: Sample, left: &mut Left) {
        let Some((source, row)) = vocabulary.get(way.hit) else { return };
        let from = (route.page, route.original);
        let value = match row.value(source, raw.value) {
            Value::Number(value) => value,
            Value::Blank => {
                left.unsupported += 1;
                self.targets.end(way.target, route.original, raw.time_ns);
                if let Some(place) = &way.unsupported {
                    let labels = || routes::unsupported(self.targets.labels(way.target));
                    let known = place.get().map_or_else(|| Err(labels()), Ok);
                    let unsupported = known.unwrap_or_else(|labels| self.targets.place(labels));
                    place.set(Some(unsupported));
                    self.targets.give(unsupported, from, Sample { value: 1.0, step: None, ..raw });
                }
                return;
            }
        };
        if let Some(unsupported) = way.told_unsupported() {
            self.targets.end(unsupported, route.original, raw.time_ns);
        }
        let mut sample = Sample { value, step: None, ..raw };
        match (way.used, route.card) {
            // Only the reading that counts moves the meter.
            (Use::Energy, _) if !self.targets.would_take(way.target, from, raw.time_ns) => {
                left.duplicate += 1;
                return;
            }
            (Use::Energy, Some(card)) => match self.energy(card, sample, left) {
                Some(joules) => sample.value = joules,
                None => return,
            },
            (Use::Limit, Some(card)) => self.cards.card(card).limit(value),
            _ => {}
        }
        if self.targets.give(way.target, from, sample) == Fate::Duplicate {
            left.duplicate += 1;
        }
    }

    /// What a card's energy is by a reading in joules.
    fn energy(&mut self, card: CardAt, raw: Sample, left: &mut Left) -> Option<f64> {
        let Some((joules, oddity)) = self.cards.energy(card, raw) else {
            left.late += 1;
            return None;
        };
        if let Some(oddity) = oddity {
            *left.odd.entry((card, oddity.name())).or_default() += 1;
        }
        Some(joules)
    }

    /// Notes what an agent reports, and makes its energy counters such that never fall.
    fn agents(&mut self, store: &Store, batch: &mut Batch, left: &mut Left) {
        for series in &mut batch.series {
            let labels = &series.identity.labels;
            if !labels.metric().starts_with(routes::GPU_PREFIX) {
                continue;
            }
            let number = store.series_number(&series.identity);
            let Some((card, used)) = self.own_route(number, labels) else { continue };
            series.samples.retain_mut(|sample| self.own_sample(card, used, sample, left));
        }
        let mut points = std::mem::take(&mut batch.points);
        points.retain_mut(|(number, sample)| {
            let known = self.own_number(store, *number);
            known.is_none_or(|(card, used)| self.own_sample(card, used, sample, left))
        });
        batch.points = points;
        batch.series.retain(|series| !series.samples.is_empty());
    }

    /// Card and use of an agent's series, by its number.
    fn own_number(&mut self, store: &Store, number: SeriesId) -> Option<(CardAt, Use)> {
        match self.own_numbers.get(number) {
            Known::Nothing => None,
            Known::Route(packed) => Some(unpack(packed)),
            Known::No => {
                let labels = store.series(number)?.labels;
                self.own_route(Some(number), &labels)
            }
        }
    }

    /// The same by its labels; remembered where it has a number.
    fn own_route(&mut self, number: Option<SeriesId>, labels: &Labels) -> Option<(CardAt, Use)> {
        match number.map_or(Known::No, |number| self.own_numbers.get(number)) {
            Known::Nothing => return None,
            Known::Route(packed) => return Some(unpack(packed)),
            Known::No => {}
        }
        let uuid = labels.get("uuid").filter(|_| labels.metric().starts_with(routes::GPU_PREFIX));
        let card = uuid.and_then(|uuid| self.cards.place(uuid));
        let found = card.map(|card| (card, Use::of(labels.metric())));
        if let (Some((card, _)), Some(host), Some(gpu)) = (found, labels.get("host"), labels.get("gpu")) {
            self.cards.card(card).named = Some((host.into(), gpu.into()));
        }
        if let Some(number) = number {
            self.own_numbers.set(number, found.map_or(Known::Nothing, |found| Known::Route(pack(found))));
        }
        found
    }

    /// Whether an agent's sample is kept; that of an energy counter is made one that never falls.
    fn own_sample(&mut self, card: CardAt, used: Use, sample: &mut Sample, left: &mut Left) -> bool {
        if is_stale_marker(sample.value) {
            return true;
        }
        if self.cards.is_ahead(sample.time_ns) {
            // A node whose clock is wrong keeps its readings, but for what is added up.
            left.ahead += u64::from(used == Use::Energy);
            return used != Use::Energy;
        }
        self.cards.card(card).agent(sample.time_ns);
        match used {
            Use::Plain => true,
            Use::Limit => {
                self.cards.card(card).limit(sample.value);
                true
            }
            Use::Energy => {
                let joules = self.energy(card, *sample, left);
                sample.value = joules.unwrap_or_default();
                joules.is_some()
            }
        }
    }
}

/// What there is to a named series.
enum Found {
    Nothing,
    At(u32),
    New(Route),
}

/// Samples as a batch holds them.
enum Samples<'b> {
    Numbered(&'b [(SeriesId, Sample)]),
    Plain(&'b [Sample]),
}

impl Samples<'_> {
    fn each(&self, mut take: impl FnMut(Sample)) {
        match self {
            Self::Numbered(part) => part.iter().for_each(|(_, sample)| take(*sample)),
            Self::Plain(part) => part.iter().for_each(|sample| take(*sample)),
        }
    }
}

fn pack((card, used): (CardAt, Use)) -> u32 {
    (card << 2) | used as u32
}

fn unpack(packed: u32) -> (CardAt, Use) {
    let used = match packed & 3 {
        1 => Use::Energy,
        2 => Use::Limit,
        _ => Use::Plain,
    };
    (packed >> 2, used)
}
