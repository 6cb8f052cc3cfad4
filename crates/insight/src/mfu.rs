//! How much of its GPUs' peak a model makes use of.

/// A model, as far as its cost matters.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Model {
    /// Parameters that a token passes; of a mixture of experts the active ones.
    pub parameters: f64,
    /// Layers, attention heads, width of a head and tokens of a sequence, where they are known: without them
    /// the cost of attention is left out, a few per cent at short sequences.
    pub attention: Option<Attention>,
}

/// What attention costs by.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Attention {
    /// Layers.
    pub layers: f64,
    /// Width of the model: heads times the width of a head.
    pub hidden_size: f64,
    /// Tokens of a sequence.
    pub sequence_length: f64,
}

impl Model {
    /// Floating-point operations of training by one token: six a parameter (two forward, four backward), and
    /// for attention twelve a layer, unit of width and token of the sequence.
    pub fn flops_per_token(&self) -> f64 {
        let attention = |a: Attention| 12.0 * a.layers * a.hidden_size * a.sequence_length;
        6.0 * self.parameters + self.attention.map_or(0.0, attention)
    }

    /// The same where all activations are computed again on the way back, as hardware sees it: a third more.
    pub fn hardware_flops_per_token(&self) -> f64 {
        self.flops_per_token() * 4.0 / 3.0
    }
}

/// Why there is no figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoMfu {
    /// One of the numbers is missing, below zero or not a number.
    Unusable,
}

/// The share of the peak that `flops_per_second` of all GPUs together are. Over 1 means that a setting is
/// wrong: a peak of another format or device, or another number of GPUs.
pub fn utilization(flops_per_second: f64, gpus: f64, peak_flops: f64) -> Result<f64, NoMfu> {
    let usable = |number: f64| number.is_finite() && number > 0.0;
    if !(flops_per_second.is_finite() && flops_per_second >= 0.0 && usable(gpus) && usable(peak_flops)) {
        return Err(NoMfu::Unusable);
    }
    Ok(flops_per_second / (gpus * peak_flops))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_of_70_billion_on_1024_h100() {
        let model = Model { parameters: 70e9, attention: None };
        let mfu = utilization(model.flops_per_token() * 782_446.915_414_626_1, 1_024.0, 989e12).unwrap();
        assert!((mfu - 0.324_494_936_957_472_6).abs() < 1e-12, "{mfu}");
    }

    #[test]
    fn attention_costs_by_the_length_of_sequences() {
        let attention = Attention { layers: 80.0, hidden_size: 8_192.0, sequence_length: 4_096.0 };
        let model = Model { parameters: 70e9, attention: Some(attention) };
        assert_eq!(model.flops_per_token(), 420e9 + 12.0 * 80.0 * 8_192.0 * 4_096.0);
        assert_eq!(model.hardware_flops_per_token() * 3.0, model.flops_per_token() * 4.0);
    }

    #[test]
    fn what_is_not_known_gives_no_figure() {
        for (flops, gpus, peak) in [(f64::NAN, 1.0, 1.0), (1.0, 0.0, 1.0), (1.0, 1.0, 0.0), (-1.0, 1.0, 1.0)]
        {
            assert_eq!(utilization(flops, gpus, peak), Err(NoMfu::Unusable));
        }
        assert_eq!(utilization(0.0, 1.0, 1.0), Ok(0.0));
    }
}
