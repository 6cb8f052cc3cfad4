//! A fleet that is sized for its peak: how much of it is idle on average, and what batch work would win.

/// Load of a fleet, as its peak and its average in one unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// The most that is asked of it.
    pub peak: f64,
    /// What is asked of it on average.
    pub average: f64,
}

impl Load {
    /// Of a peak that is so many times the average.
    pub fn of_ratio(peak_to_average: f64) -> Option<Self> {
        (peak_to_average.is_finite() && peak_to_average >= 1.0)
            .then_some(Self { peak: peak_to_average, average: 1.0 })
    }

    /// Of points in time and what was asked for from each on; the last tells only where the time ends. The
    /// average is over time, not over points. None without two points in order, or where nothing was asked for.
    pub fn of_points(points: &[(f64, f64)]) -> Option<Self> {
        let (first, last) = (points.first()?, points.last()?);
        if points
            .windows(2)
            .any(|pair| pair[1].0.partial_cmp(&pair[0].0) != Some(std::cmp::Ordering::Greater))
        {
            return None;
        }
        let seconds = last.0 - first.0;
        let sum: f64 = points.windows(2).map(|pair| pair[0].1 * (pair[1].0 - pair[0].0)).sum();
        let peak = points.iter().map(|(_, load)| *load).fold(0.0, f64::max);
        let load = Self { peak, average: sum / seconds };
        (seconds > 0.0 && peak > 0.0 && load.average.is_finite()).then_some(load)
    }

    /// The most that the average can be of what a fleet sized for the peak can do.
    pub fn average_over_peak(self) -> f64 {
        self.average / self.peak
    }

    /// What batch work could do in the troughs, in the unit of the load.
    pub fn idle(self) -> f64 {
        self.peak - self.average
    }

    /// GPUs that the peak needs where one does `per_gpu`, and a share of them is kept back.
    pub fn gpus_for_peak(self, per_gpu: f64, headroom_ratio: f64) -> Option<f64> {
        let usable = per_gpu * (1.0 - headroom_ratio);
        (usable > 0.0).then(|| (self.peak / usable).ceil())
    }

    /// How much less a token costs where batch work fills the troughs, of what it costs without.
    pub fn saving_ratio(self) -> f64 {
        1.0 - self.average_over_peak()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_of_three_times_the_average_leaves_two_thirds_idle() {
        let load = Load::of_ratio(3.0).unwrap();
        assert!((load.average_over_peak() - 1.0 / 3.0).abs() < 1e-15);
        assert!((load.saving_ratio() - 2.0 / 3.0).abs() < 1e-15);
        assert_eq!(Load::of_ratio(0.5), None);
        assert_eq!(Load::of_ratio(f64::NAN), None);
    }

    #[test]
    fn an_average_is_over_time() {
        let load = Load::of_points(&[(0.0, 10.0), (90.0, 100.0), (100.0, 0.0)]).unwrap();
        assert_eq!((load.peak, load.average, load.idle()), (100.0, 19.0, 81.0));
        assert_eq!(load.gpus_for_peak(30.0, 0.2), Some(5.0));
        assert_eq!(load.gpus_for_peak(0.0, 0.0), None);
        assert_eq!(load.gpus_for_peak(30.0, 1.0), None);
        for none in [&[(0.0, 1.0)][..], &[(1.0, 1.0), (0.0, 1.0)], &[(0.0, 0.0), (1.0, 0.0)], &[]] {
            assert_eq!(Load::of_points(none), None, "{none:?}");
        }
    }
}
