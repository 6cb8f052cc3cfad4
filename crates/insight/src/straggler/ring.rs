//! The latest steps, one row of numbers a rank.

/// Steps of a window.
pub(super) const WINDOW: usize = 20;
/// Steps between windows.
pub(super) const SLIDE: u64 = 5;
/// Steps of a rank's own time that are kept: more than a window, so that its beginning can be found in it.
pub(super) const KEPT: usize = 32;
/// Steps of a window that a rank needs to be judged.
pub(super) const PRESENT_MIN: usize = 15;

/// So many numbers of each rank; NaN where there is none.
#[derive(Debug, Clone)]
pub(super) struct Ring {
    width: usize,
    values: Vec<f32>,
}

impl Ring {
    pub(super) fn new(ranks: usize, width: usize) -> Self {
        Self { width, values: vec![f32::NAN; ranks * width] }
    }

    /// Puts a rank's number of the step with this count.
    pub(super) fn put(&mut self, place: usize, count: u64, value: f32) {
        let slot = (count % self.width as u64) as usize;
        self.values[place * self.width + slot] = value;
    }

    /// A rank's number of the step with this count.
    pub(super) fn at(&self, place: usize, count: u64) -> f32 {
        self.values[place * self.width + (count % self.width as u64) as usize]
    }

    /// All that is kept of a rank, in no order.
    pub(super) fn row(&self, place: usize) -> &[f32] {
        &self.values[place * self.width..(place + 1) * self.width]
    }

    /// A rank's numbers of the steps `[end - n, end)`, in order.
    pub(super) fn last(&self, place: usize, end: u64, n: usize) -> impl Iterator<Item = f32> + '_ {
        (end.saturating_sub(n as u64)..end).map(move |count| self.at(place, count))
    }

    /// Their median, and how many there are of them.
    pub(super) fn median(&self, place: usize, end: u64) -> (f32, usize) {
        let mut window = [0.0_f32; WINDOW];
        let mut present = 0;
        for value in self.last(place, end, WINDOW).filter(|value| !value.is_nan()) {
            window[present] = value;
            present += 1;
        }
        (median(&mut window[..present]), present)
    }

    pub(super) fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<f32>()
    }
}

/// The median; the mean of the two in the middle of an even number; NaN of nothing. Reorders.
pub(super) fn median(values: &mut [f32]) -> f32 {
    let n = values.len();
    if n == 0 {
        return f32::NAN;
    }
    let (below, middle, _) = values.select_nth_unstable_by(n / 2, f32::total_cmp);
    let middle = *middle;
    if n % 2 == 1 {
        return middle;
    }
    let lower = below.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    f32::midpoint(lower, middle)
}

/// The same of numbers that are to stay as they are; those that are not numbers are left out.
pub(super) fn median_of(values: impl IntoIterator<Item = f32>, scratch: &mut Vec<f32>) -> f32 {
    scratch.clear();
    scratch.extend(values.into_iter().filter(|value| !value.is_nan()));
    median(scratch)
}

/// Median and spread, as the standard deviation of what is not far out, at least half a per cent.
pub(super) fn centre(values: impl Iterator<Item = f32> + Clone, scratch: &mut Vec<f32>) -> (f32, f32) {
    let middle = median_of(values.clone(), scratch);
    let off = median_of(values.map(|value| (value - middle).abs()), scratch);
    (middle, (1.4826 * off).max(0.005 * middle))
}
