//! Decoding on ideal hardware: what a step can't be faster than.
//!
//! Every step reads all weights once and the keys and values of every sequence; each sequence costs two
//! operations a parameter. Whichever takes longer, memory or arithmetic, is the step. Real kernels reach a part of
//! the peaks, so real steps are longer.

/// A model that decodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decoder {
    /// All parameters: what memory holds.
    pub parameters: f64,
    /// Parameters that a token passes; the same unless the model is a mixture of experts.
    pub active_parameters: f64,
    /// Bytes of a parameter.
    pub bytes_per_parameter: f64,
    /// Layers.
    pub layers: f64,
    /// Heads that keys and values are kept for.
    pub kv_heads: f64,
    /// Width of a head.
    pub head_dim: f64,
    /// Bytes of a number that is kept.
    pub bytes_per_kv: f64,
}

/// What the hardware can do at most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hardware {
    /// Dense operations per second.
    pub flops: f64,
    /// Bytes of memory traffic per second.
    pub bytes_per_second: f64,
}

/// A step of one batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Sequences.
    pub batch: f64,
    /// What it takes at least, seconds.
    pub seconds: f64,
    /// What arithmetic alone would take, seconds.
    pub compute_seconds: f64,
    /// What memory alone would take, seconds.
    pub memory_seconds: f64,
    /// Bytes that it reads.
    pub bytes: f64,
    /// Bytes of keys and values among them.
    pub kv_bytes: f64,
}

impl Step {
    /// One token a sequence.
    pub fn tokens_per_second(&self) -> f64 {
        self.batch / self.seconds
    }

    /// Share of the step in which the tensor cores work.
    pub fn tensor_busy(&self) -> f64 {
        self.compute_seconds / self.seconds
    }

    /// Share of the step in which memory is read.
    pub fn memory_busy(&self) -> f64 {
        self.memory_seconds / self.seconds
    }

    /// Memory bandwidth utilization of a step that was measured to take so long.
    pub fn bandwidth_utilization(&self, measured_seconds: f64, hardware: Hardware) -> f64 {
        self.bytes / (measured_seconds * hardware.bytes_per_second)
    }
}

impl Decoder {
    /// Bytes of all weights.
    pub fn weight_bytes(&self) -> f64 {
        self.parameters * self.bytes_per_parameter
    }

    /// Bytes of keys and values that a token leaves: two numbers a layer, head and unit of width.
    pub fn kv_bytes_per_token(&self) -> f64 {
        self.layers * self.kv_heads * self.head_dim * 2.0 * self.bytes_per_kv
    }

    /// Operations of a token: two a parameter that it passes, attention left out.
    pub fn flops_per_token(&self) -> f64 {
        2.0 * self.active_parameters
    }

    /// Bytes of weights that a step reads: all of them, or of a mixture of experts at most what its tokens
    /// pass, as if no two chose the same expert.
    fn weight_bytes_read(&self, batch: f64) -> f64 {
        (self.active_parameters * batch).min(self.parameters).max(self.active_parameters)
            * self.bytes_per_parameter
    }

    /// A step of `batch` sequences that are `context` tokens long.
    pub fn step(&self, hardware: Hardware, batch: f64, context: f64) -> Step {
        let kv_bytes = batch * context * self.kv_bytes_per_token();
        let bytes = self.weight_bytes_read(batch) + kv_bytes;
        let memory_seconds = bytes / hardware.bytes_per_second;
        let compute_seconds = batch * self.flops_per_token() / hardware.flops;
        let seconds = memory_seconds.max(compute_seconds);
        Step { batch, seconds, compute_seconds, memory_seconds, bytes, kv_bytes }
    }

    /// The largest batch of sequences of `context` tokens whose keys and values fit beside the weights; 0 where
    /// not one does. None where a sequence needs no memory.
    pub fn batch_max(&self, memory_bytes: f64, context: f64) -> Option<f64> {
        let each = context * self.kv_bytes_per_token();
        (each > 0.0).then(|| ((memory_bytes - self.weight_bytes()) / each).floor().max(0.0))
    }

    /// The step of one sequence without its keys and values: no batch is faster.
    pub fn floor_seconds(&self, hardware: Hardware) -> f64 {
        self.active_parameters * self.bytes_per_parameter / hardware.bytes_per_second
    }
}

impl Hardware {
    /// Operations for a byte at which memory and arithmetic take as long as each other.
    pub fn ridge(&self) -> f64 {
        self.flops / self.bytes_per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H100: Hardware = Hardware { flops: 989e12, bytes_per_second: 3.35e12 };
    const MODEL: Decoder = Decoder {
        parameters: 8.03e9,
        active_parameters: 8.03e9,
        bytes_per_parameter: 2.0,
        layers: 32.0,
        kv_heads: 8.0,
        head_dim: 128.0,
        bytes_per_kv: 2.0,
    };

    fn is(found: f64, want: f64, digit: f64) {
        assert!((found - want).abs() <= digit / 2.0 * 1.000_001, "{found} is not {want}");
    }

    #[test]
    fn eight_billion_parameters_on_an_h100() {
        for (batch, milliseconds, tokens, tensor) in [
            (1.0, 4.8742, 205.1636, 0.0033),
            (8.0, 5.4351, 1_471.922_2, 0.0239),
            (32.0, 7.3582, 4_348.895_9, 0.0706),
            (64.0, 9.9223, 6_450.085_6, 0.1047),
            (128.0, 15.0507, 8_504.605_8, 0.1381),
        ] {
            let step = MODEL.step(H100, batch, 2_048.0);
            is(step.seconds * 1e3, milliseconds, 1e-4);
            is(step.tokens_per_second(), tokens, 1e-4);
            is(step.tensor_busy(), tensor, 1e-4);
            assert_eq!(step.memory_busy(), 1.0);
        }
        assert_eq!(MODEL.kv_bytes_per_token(), 131_072.0);
        is(MODEL.step(H100, 128.0, 2_048.0).kv_bytes / 1e9, 34.36, 0.01);
        is(MODEL.weight_bytes() / 1e9, 16.06, 0.01);
    }

    #[test]
    fn a_longer_context_fits_a_smaller_batch() {
        let fits = |memory: f64| MODEL.batch_max(memory, 8_192.0);
        assert_eq!(fits(80e9), Some(59.0));
        assert_eq!(fits(80.0 * 1_073_741_824.0), Some(65.0));
        assert_eq!(fits(0.9 * 80e9), Some(52.0));
        assert_eq!(fits(16e9), Some(0.0), "not even the weights");
        let step = MODEL.step(H100, 32.0, 8_192.0);
        is(step.tokens_per_second(), 2_126.0, 1.0);
        is(step.seconds * 1e3, 15.05, 0.01);
        let of_short = step.tokens_per_second() / MODEL.step(H100, 32.0, 2_048.0).tokens_per_second();
        is(of_short, 0.489, 0.001);
    }

    #[test]
    fn ridges_and_floors_of_cards() {
        for (flops, bandwidth, ridge, floor) in [
            (312e12, 2.039e12, 153.0, 7.88),
            (989e12, 3.35e12, 295.2, 4.79),
            (989.4e12, 4.8e12, 206.1, 3.35),
            (2_250e12, 8e12, 281.0, 2.01),
            (1_307.4e12, 5.3e12, 246.7, 3.03),
            (2_516e12, 8e12, 314.5, 2.01),
            (121e12, 0.3e12, 403.0, 53.5),
        ] {
            let card = Hardware { flops, bytes_per_second: bandwidth };
            is(card.ridge(), ridge, if ridge.fract() == 0.0 { 1.0 } else { 0.1 });
            is(MODEL.floor_seconds(card) * 1e3, floor, if floor > 50.0 { 0.1 } else { 0.01 });
        }
    }

    #[test]
    fn a_mixture_reads_no_more_than_it_has_and_no_less_than_a_token_passes() {
        let mixture =
            Decoder { parameters: 671e9, active_parameters: 37e9, bytes_per_parameter: 1.0, ..MODEL };
        let read = |batch: f64| mixture.step(H100, batch, 0.0).bytes;
        assert_eq!((read(1.0), read(8.0), read(64.0)), (37e9, 296e9, 671e9));
        assert_eq!(mixture.flops_per_token(), 74e9);
        assert_eq!(mixture.batch_max(1e12, 0.0), None);
    }

    #[test]
    fn a_measured_step_has_a_share_of_the_bandwidth() {
        let step = MODEL.step(H100, 8.0, 2_048.0);
        is(step.bandwidth_utilization(step.seconds * 2.0, H100), 0.5, 1e-12);
    }
}
