//! One streamed answer: when its tokens came.
//!
//! TTFT is from the request to the first token, TPOT the mean gap after it, ITL each gap. A mean hides a stall
//! that the greatest gap shows.

/// The times of an answer's tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Stream {
    /// Of every token, seconds since the request.
    times: Vec<f64>,
    /// Between tokens, seconds, from least to greatest.
    gaps: Vec<f64>,
}

/// Why times are no stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoStream {
    /// There is none.
    Empty,
    /// This one, from 0, is before the one before.
    Unsorted(usize),
    /// This one is not a number, not finite or before the request.
    Unusable(usize),
}

impl Stream {
    /// Of times in seconds since the request.
    pub fn of(times: Vec<f64>) -> Result<Self, NoStream> {
        if times.is_empty() {
            return Err(NoStream::Empty);
        }
        if let Some(at) = times.iter().position(|time| !(time.is_finite() && *time >= 0.0)) {
            return Err(NoStream::Unusable(at));
        }
        if let Some(at) = times.windows(2).position(|pair| pair[1] < pair[0]) {
            return Err(NoStream::Unsorted(at + 1));
        }
        let mut gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        gaps.sort_unstable_by(f64::total_cmp);
        Ok(Self { times, gaps })
    }

    /// How many tokens.
    pub fn tokens(&self) -> usize {
        self.times.len()
    }

    /// How many gaps between them.
    pub fn gaps(&self) -> usize {
        self.gaps.len()
    }

    /// Time to the first token, seconds.
    pub fn ttft_seconds(&self) -> f64 {
        self.times[0]
    }

    /// Time to the last token, seconds.
    pub fn e2e_seconds(&self) -> f64 {
        self.times[self.times.len() - 1]
    }

    /// Time for each token after the first, seconds; none where there is one only.
    pub fn tpot_seconds(&self) -> Option<f64> {
        let after = self.gaps.len();
        (after > 0).then(|| (self.e2e_seconds() - self.ttft_seconds()) / after as f64)
    }

    /// A quantile of the gaps, seconds: between the two closest ones, in proportion, so that 0.5 is the median.
    pub fn itl_seconds(&self, quantile: f64) -> Option<f64> {
        let at = quantile.clamp(0.0, 1.0) * self.gaps.len().checked_sub(1)? as f64;
        let (below, above) = (self.gaps[at.floor() as usize], self.gaps[at.ceil() as usize]);
        Some(below + (above - below) * at.fract())
    }

    /// The greatest gap, seconds.
    pub fn itl_max_seconds(&self) -> Option<f64> {
        self.gaps.last().copied()
    }

    /// Gaps longer than `seconds`: before which token, from 0, and how long.
    pub fn stalls(&self, seconds: f64) -> impl Iterator<Item = (usize, f64)> {
        let gaps = self.times.windows(2).map(|pair| pair[1] - pair[0]).enumerate();
        gaps.filter(move |(_, gap)| *gap > seconds).map(|(at, gap)| (at + 1, gap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_a_stall() -> Stream {
        let mut time = 0.42;
        let times = (0..300).map(|at| {
            let now = time;
            time += 0.025 + if at == 150 { 2.0 } else { 0.0 };
            now
        });
        Stream::of(times.collect()).unwrap()
    }

    #[test]
    fn a_mean_hides_a_stall_that_the_greatest_gap_shows() {
        let stream = with_a_stall();
        let is = |found: f64, want: f64, within: f64| {
            assert!((found - want).abs() < within, "{found}, not {want}");
        };
        assert_eq!((stream.tokens(), stream.gaps()), (300, 299));
        is(stream.ttft_seconds(), 0.42, 1e-12);
        is(stream.tpot_seconds().unwrap(), 0.031_688_963_210_702_49, 1e-12);
        for quantile in [0.5, 0.95, 0.99] {
            is(stream.itl_seconds(quantile).unwrap(), 0.025, 1e-9);
        }
        is(stream.itl_max_seconds().unwrap(), 2.025, 1e-9);
        is(stream.e2e_seconds(), 9.895, 1e-9);
        let stalls: Vec<(usize, f64)> = stream.stalls(1.0).collect();
        assert_eq!((stalls.len(), stalls[0].0), (1, 151));
    }

    #[test]
    fn quantiles_are_between_the_closest_gaps() {
        let stream = Stream::of(vec![0.0, 1.0, 3.0, 6.0, 10.0]).unwrap();
        assert_eq!(stream.itl_seconds(0.5), Some(2.5));
        assert_eq!(stream.itl_seconds(0.0), Some(1.0));
        assert_eq!(stream.itl_seconds(1.0), Some(4.0));
    }

    #[test]
    fn one_token_has_no_gaps() {
        let stream = Stream::of(vec![0.5]).unwrap();
        assert_eq!(
            (stream.tpot_seconds(), stream.itl_seconds(0.5), stream.itl_max_seconds()),
            (None, None, None)
        );
        assert_eq!(stream.stalls(0.0).count(), 0);
    }

    #[test]
    fn times_that_can_not_be_are_named() {
        assert_eq!(Stream::of(Vec::new()), Err(NoStream::Empty));
        assert_eq!(Stream::of(vec![0.1, 0.3, 0.2]), Err(NoStream::Unsorted(2)));
        assert_eq!(Stream::of(vec![0.1, f64::NAN]), Err(NoStream::Unusable(1)));
        assert_eq!(Stream::of(vec![-0.1]), Err(NoStream::Unusable(0)));
    }
}
