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

/// How the operations of a token are counted; a figure without it can't be compared with another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlopsModel {
    /// Six a parameter: training, attention left out.
    SixN,
    /// The same and attention over whole sequences.
    SixNAttention,
    /// The same and half of that: each token sees those before it only.
    SixNAttentionCausal,
    /// Two a parameter: inference, attention left out.
    TwoN,
    /// The same and attention over whole sequences.
    TwoNAttention,
}

impl FlopsModel {
    /// Every model.
    pub const ALL: [Self; 5] =
        [Self::SixN, Self::SixNAttention, Self::SixNAttentionCausal, Self::TwoN, Self::TwoNAttention];

    /// As labels and answers name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::SixN => "6N",
            Self::SixNAttention => "6N+attn",
            Self::SixNAttentionCausal => "6N+attn_causal",
            Self::TwoN => "2N",
            Self::TwoNAttention => "2N+attn",
        }
    }

    /// Reads [`FlopsModel::name`].
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|model| model.name() == name)
    }

    /// Whether it needs the model's [`Attention`].
    pub fn needs_attention(self) -> bool {
        !matches!(self, Self::SixN | Self::TwoN)
    }

    /// Whether there is a way back, so that activations can be computed again.
    pub fn is_training(self) -> bool {
        !matches!(self, Self::TwoN | Self::TwoNAttention)
    }

    /// Operations of one token by `parameters` alone, and by attention.
    fn parts(self, parameters: f64, attention: Option<Attention>) -> Option<(f64, f64)> {
        let whole = |a: Attention| 12.0 * a.layers * a.hidden_size * a.sequence_length;
        Some(match self {
            Self::SixN => (6.0 * parameters, 0.0),
            Self::SixNAttention => (6.0 * parameters, whole(attention?)),
            Self::SixNAttentionCausal => (6.0 * parameters, whole(attention?) / 2.0),
            Self::TwoN => (2.0 * parameters, 0.0),
            Self::TwoNAttention => (2.0 * parameters, whole(attention?) / 3.0),
        })
    }
}

/// What is computed again on the way back because it was not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recompute {
    /// Nothing.
    None,
    /// Attention alone.
    Selective,
    /// All activations: one more way forward.
    Full,
}

impl Recompute {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::None, Self::Selective, Self::Full];

    /// As settings name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Selective => "selective",
            Self::Full => "full",
        }
    }
}

impl Model {
    /// Operations of one token as `flops` counts them; none where that needs attention and its sizes are not known.
    pub fn flops(&self, flops: FlopsModel) -> Option<f64> {
        flops.parts(self.parameters, self.attention).map(|(dense, attention)| dense + attention)
    }

    /// The same as the hardware sees them: what is computed again counts too. None where nothing comes back, as
    /// in inference, and for [`Recompute::Selective`] where attention is not counted.
    pub fn hardware_flops(&self, flops: FlopsModel, recompute: Recompute) -> Option<f64> {
        let (dense, attention) = flops.parts(self.parameters, self.attention)?;
        if !flops.is_training() {
            return None;
        }
        // The way forward is a third of all.
        Some(match recompute {
            Recompute::None => dense + attention,
            Recompute::Selective if flops.needs_attention() => dense + attention * 4.0 / 3.0,
            Recompute::Selective => return None,
            Recompute::Full => (dense + attention) * 4.0 / 3.0,
        })
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
    fn the_way_of_counting_and_the_peak_decide_what_one_run_comes_to() {
        let attention =
            |sequence_length| Attention { layers: 80.0, hidden_size: 64.0 * 128.0, sequence_length };
        let model = |length| Model { parameters: 70e9, attention: Some(attention(length)) };
        let percent = |flops: Option<f64>, peak: f64| {
            utilization(flops.unwrap() * 782_446.915_414_626_1, 1_024.0, peak).unwrap() * 100.0
        };
        let is = |found: f64, want: f64| assert!((found - want).abs() < 0.005, "{found} is not {want}");
        let (short, long) = (model(4_096.0), model(8_192.0));
        is(percent(short.flops(FlopsModel::SixN), 989e12), 32.45);
        is(percent(short.flops(FlopsModel::SixNAttention), 989e12), 34.94);
        is(percent(long.flops(FlopsModel::SixNAttention), 989e12), 37.43);
        is(percent(short.flops(FlopsModel::SixNAttentionCausal), 989e12), 33.69);
        is(percent(long.flops(FlopsModel::SixNAttentionCausal), 989e12), 34.94);
        is(percent(short.hardware_flops(FlopsModel::SixN, Recompute::Full), 989e12), 43.27);
        for (peak, want) in [(989.4e12, 32.44), (1_979e12, 16.22), (794.5e12, 40.39), (312e12, 102.86)] {
            is(percent(short.flops(FlopsModel::SixN), peak), want);
        }
        let more = short.flops(FlopsModel::SixNAttention).unwrap() - short.flops(FlopsModel::SixN).unwrap();
        assert_eq!(more, 32_212_254_720.0);
        assert_eq!(short.flops(FlopsModel::TwoN), Some(140e9));
        assert_eq!(short.flops(FlopsModel::TwoNAttention), Some(140e9 + more / 3.0));
    }

    #[test]
    fn a_mixture_counts_what_a_token_passes() {
        let percent = |parameters: f64| {
            let flops = Model { parameters, attention: None }.flops(FlopsModel::SixN).unwrap();
            utilization(flops * 2e6, 2_048.0, 989e12).unwrap() * 100.0
        };
        assert!((percent(37e9) - 21.92).abs() < 0.005, "{}", percent(37e9));
        assert!((percent(671e9) - 397.5).abs() < 0.05, "what all parameters would say");
    }

    #[test]
    fn what_is_computed_again_is_the_hardwares_alone() {
        let attention = Attention { layers: 1.0, hidden_size: 1.0, sequence_length: 1.0 };
        let model = Model { parameters: 1.0, attention: Some(attention) };
        let hardware = |flops, recompute| model.hardware_flops(flops, recompute);
        assert_eq!(hardware(FlopsModel::SixNAttention, Recompute::None), Some(18.0));
        assert_eq!(hardware(FlopsModel::SixNAttention, Recompute::Selective), Some(22.0));
        assert_eq!(hardware(FlopsModel::SixNAttention, Recompute::Full), Some(24.0));
        assert_eq!(hardware(FlopsModel::SixN, Recompute::Selective), None, "attention is not counted");
        assert_eq!(hardware(FlopsModel::TwoN, Recompute::Full), None, "nothing comes back");
        let blind = Model { attention: None, ..model };
        assert_eq!(blind.flops(FlopsModel::SixNAttention), None);
        for flops in FlopsModel::ALL {
            assert_eq!(FlopsModel::named(flops.name()), Some(flops));
        }
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
