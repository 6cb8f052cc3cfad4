//! Which requests were served as they should be: goodput, exact from requests and bounded from histograms.
//!
//! A request is good when it meets every objective of its model. Two histograms don't say whether their bad
//! requests are the same ones, so they bound goodput from both sides (Fréchet's inequalities) and give no more.

/// What a model's requests should meet. What is not set is not asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Objectives {
    /// Longest time to the first token, seconds.
    pub ttft_seconds: Option<f64>,
    /// Longest mean time of each token after it, seconds.
    pub tpot_seconds: Option<f64>,
    /// Longest gap between two tokens, seconds.
    pub itl_seconds: Option<f64>,
}

/// One request, as far as it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Request {
    /// Time to the first token, seconds.
    pub ttft_seconds: Option<f64>,
    /// Mean time of each token after it, seconds; none where it has one token only.
    pub tpot_seconds: Option<f64>,
    /// Longest gap between two tokens, seconds; none where it has one token only.
    pub itl_max_seconds: Option<f64>,
}

impl Objectives {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a request meets all of them. One without a first token does not meet an objective for it; one
    /// that has no gaps between tokens has none that is too long.
    pub fn met_by(&self, request: &Request) -> bool {
        let first = self.ttft_seconds.is_none_or(|most| request.ttft_seconds.is_some_and(|it| it <= most));
        let within = |most: Option<f64>, it: Option<f64>| most.zip(it).is_none_or(|(most, it)| it <= most);
        first
            && within(self.tpot_seconds, request.tpot_seconds)
            && within(self.itl_seconds, request.itl_max_seconds)
    }

    /// How many of them meet all.
    pub fn met<'a>(&self, requests: impl IntoIterator<Item = &'a Request>) -> usize {
        requests.into_iter().filter(|request| self.met_by(request)).count()
    }
}

/// A bucket of a histogram.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// Its upper bound, `+Inf` of the last.
    pub le: f64,
    /// What is in it and in those below it: a difference over a window, not a count since start-up.
    pub count: f64,
}

/// The share of what a histogram holds that is at most as large as an objective.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// At least so much: the bucket bound below the objective.
    pub lower: f64,
    /// At most so much: the one above.
    pub upper: f64,
    /// In proportion between them; the same as both where the objective is a bound.
    pub interpolated: f64,
    /// The bounds around the objective; the same where it is one.
    pub bounds: (f64, f64),
}

impl Share {
    /// One that is known exactly.
    pub fn exact(ratio: f64) -> Self {
        Self { lower: ratio, upper: ratio, interpolated: ratio, bounds: (f64::NAN, f64::NAN) }
    }

    /// Whether the objective is a bucket bound.
    pub fn is_exact(&self) -> bool {
        self.lower == self.upper
    }
}

/// Why a histogram gives no share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoShare {
    /// It has no bucket `+Inf`, so how many there are is not known.
    NoTotal,
    /// It is empty.
    Empty,
    /// Bounds or counts fall from one bucket to the next, or are no numbers.
    Unsorted(usize),
}

/// The share of a histogram at or below `objective`, seconds. Buckets are in the order of their bounds.
pub fn share(buckets: &[Bucket], objective: f64) -> Result<Share, NoShare> {
    let falls = |pair: &[Bucket]| !(pair[1].le > pair[0].le && pair[1].count >= pair[0].count);
    if let Some(at) = buckets.windows(2).position(falls) {
        return Err(NoShare::Unsorted(at + 1));
    }
    if buckets.iter().any(|bucket| bucket.le.is_nan() || !bucket.count.is_finite() || bucket.count < 0.0) {
        return Err(NoShare::Unsorted(0));
    }
    let total = buckets.last().filter(|last| last.le == f64::INFINITY).ok_or(NoShare::NoTotal)?.count;
    if total == 0.0 {
        return Err(NoShare::Empty);
    }
    let above = buckets.partition_point(|bucket| bucket.le < objective).min(buckets.len() - 1);
    let upper = buckets[above];
    if upper.le == objective {
        let ratio = upper.count / total;
        return Ok(Share { bounds: (objective, objective), ..Share::exact(ratio) });
    }
    let lower = above.checked_sub(1).map_or(Bucket { le: 0.0, count: 0.0 }, |at| buckets[at]);
    // Nothing is known of where in the last bucket its values are.
    let part = if upper.le.is_finite() { (objective - lower.le) / (upper.le - lower.le) } else { 0.0 };
    Ok(Share {
        lower: lower.count / total,
        upper: upper.count / total,
        interpolated: (lower.count + (upper.count - lower.count) * part.clamp(0.0, 1.0)) / total,
        bounds: (lower.le, upper.le),
    })
}

/// The share of `requests` none of whose gaps is too long, from a histogram of gaps of which `bad` are. Each bad
/// gap spoils one request at most, and all of them could be of one.
pub fn share_of_gaps(bad_gaps: f64, requests: f64) -> Option<Share> {
    if !(bad_gaps >= 0.0 && requests > 0.0) {
        return None;
    }
    let lower = (1.0 - bad_gaps / requests).max(0.0);
    let upper = if bad_gaps > 0.0 { (1.0 - 1.0 / requests).max(0.0) } else { 1.0 };
    Some(Share { lower, upper: upper.max(lower), interpolated: lower, bounds: (f64::NAN, f64::NAN) })
}

/// From what to what goodput can be, by the shares of its objectives one by one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// As if no bad request were bad twice.
    pub lower: f64,
    /// As if all of them were.
    pub upper: f64,
}

/// Fréchet's bounds. None without shares.
pub fn interval(shares: &[Share]) -> Option<Interval> {
    let upper = shares.iter().map(|share| share.upper).min_by(f64::total_cmp)?;
    let sum: f64 = shares.iter().map(|share| share.lower).sum();
    let lower = (sum - (shares.len() - 1) as f64).max(0.0);
    Some(Interval { lower: lower.min(upper), upper })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn two_shares_bound_goodput_from_both_sides() {
        let found = interval(&[Share::exact(0.95), Share::exact(0.90)]).unwrap();
        assert!((found.lower - 0.85).abs() < 1e-12 && found.upper == 0.90, "{found:?}");
        let three = interval(&[Share::exact(0.95), Share::exact(0.90), Share::exact(0.99)]).unwrap();
        assert!((three.lower - 0.84).abs() < 1e-12 && three.upper == 0.90, "{three:?}");
        assert_eq!(interval(&[Share::exact(0.3), Share::exact(0.3)]).unwrap().lower, 0.0);
        assert_eq!(interval(&[]), None);
    }

    fn buckets() -> Vec<Bucket> {
        let bucket = |(le, count): (f64, f64)| Bucket { le, count };
        [(0.5, 50.0), (1.0, 80.0), (2.0, 95.0), (f64::INFINITY, 100.0)].map(bucket).to_vec()
    }

    #[test]
    fn an_objective_between_bounds_is_told_by_the_bounds_around_it() {
        let at = share(&buckets(), 1.0).unwrap();
        assert_eq!((at.lower, at.upper, at.interpolated, at.is_exact()), (0.8, 0.8, 0.8, true));
        let between = share(&buckets(), 1.5).unwrap();
        assert_eq!((between.lower, between.upper, between.bounds), (0.8, 0.95, (1.0, 2.0)));
        assert!((between.interpolated - 0.875).abs() < 1e-12 && !between.is_exact());
        let below = share(&buckets(), 0.1).unwrap();
        assert_eq!((below.lower, below.upper), (0.0, 0.5));
        let beyond = share(&buckets(), 60.0).unwrap();
        assert_eq!((beyond.lower, beyond.upper, beyond.interpolated), (0.95, 1.0, 0.95));
    }

    #[test]
    fn histograms_that_can_not_be_are_named() {
        assert_eq!(share(&buckets()[..3], 1.0), Err(NoShare::NoTotal));
        assert_eq!(share(&[], 1.0), Err(NoShare::NoTotal));
        assert_eq!(share(&[Bucket { le: f64::INFINITY, count: 0.0 }], 1.0), Err(NoShare::Empty));
        let mut falling = buckets();
        falling[2].count = 10.0;
        assert_eq!(share(&falling, 1.0), Err(NoShare::Unsorted(2)));
        falling[2].count = f64::NAN;
        assert_eq!(share(&falling, 1.0), Err(NoShare::Unsorted(2)));
    }

    #[test]
    fn a_bad_gap_spoils_one_request_at_most() {
        let found = share_of_gaps(3.0, 10.0).unwrap();
        assert_eq!((found.lower, found.upper), (0.7, 0.9));
        assert_eq!(share_of_gaps(50.0, 10.0).unwrap().lower, 0.0);
        assert_eq!(share_of_gaps(0.0, 10.0).unwrap().upper, 1.0);
        assert_eq!(share_of_gaps(1.0, 0.0), None);
    }

    #[test]
    fn a_request_is_good_when_it_meets_all() {
        let ask = Objectives { ttft_seconds: Some(2.0), tpot_seconds: Some(0.06), itl_seconds: Some(0.2) };
        let request = |ttft: f64, tpot: Option<f64>, gap: Option<f64>| Request {
            ttft_seconds: Some(ttft),
            tpot_seconds: tpot,
            itl_max_seconds: gap,
        };
        let requests = [
            request(1.0, Some(0.05), Some(0.1)),
            request(2.1, Some(0.05), Some(0.1)),
            request(1.0, Some(0.07), Some(0.1)),
            request(1.0, Some(0.05), Some(2.0)),
            request(1.0, None, None),
            Request::default(),
        ];
        assert_eq!(ask.met(&requests), 2);
        assert!(Objectives::default().is_empty() && !ask.is_empty());
    }

    proptest! {
        #[test]
        fn the_truth_is_within_the_bounds(
            requests in proptest::collection::vec((0.0_f64..4.0, 0.0_f64..0.2), 1..60),
            ttft in 0.1_f64..4.0,
            tpot in 0.01_f64..0.2,
        ) {
            let histogram = |values: Vec<f64>, unit: f64| -> Vec<Bucket> {
                (1..=8).map(|at| f64::from(at) * unit).chain([f64::INFINITY]).map(|le| Bucket {
                    le, count: values.iter().filter(|value| **value <= le).count() as f64,
                }).collect()
            };
            let ask = Objectives { ttft_seconds: Some(ttft), tpot_seconds: Some(tpot), itl_seconds: None };
            let all: Vec<Request> = requests.iter().map(|(ttft, tpot)| Request {
                ttft_seconds: Some(*ttft), tpot_seconds: Some(*tpot), itl_max_seconds: None,
            }).collect();
            let truth = ask.met(&all) as f64 / all.len() as f64;
            let ttfts = histogram(requests.iter().map(|one| one.0).collect(), 0.5);
            let tpots = histogram(requests.iter().map(|one| one.1).collect(), 0.025);
            let found = interval(&[share(&ttfts, ttft).unwrap(), share(&tpots, tpot).unwrap()]).unwrap();
            prop_assert!(found.lower <= truth + 1e-9 && truth <= found.upper + 1e-9, "{found:?} {truth}");
        }
    }
}
