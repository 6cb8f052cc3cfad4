//! What accelerators can do at most: dense floating-point operations and memory traffic per second.
//!
//! Makers print figures for sparse matrices first; those here are dense, half of that. They are peaks of
//! a data sheet, at boost clock; [`Gpu::achievable`] says what large matrix products were seen to reach.
//! A device that is not in the table has no peak: a guess would make its utilisation a guess.

/// A number format of a computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dtype {
    /// 16 bits, 8 of them exponent.
    Bf16,
    /// 16 bits, 5 of them exponent.
    Fp16,
    /// 8 bits.
    Fp8,
    /// 4 bits.
    Fp4,
    /// 32 bits, multiplied with 19.
    Tf32,
    /// 32 bits, outside tensor cores.
    Fp32,
}

impl Dtype {
    /// Every format.
    pub const ALL: [Self; 6] = [Self::Bf16, Self::Fp16, Self::Fp8, Self::Fp4, Self::Tf32, Self::Fp32];

    /// As labels and settings name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
            Self::Fp8 => "fp8",
            Self::Fp4 => "fp4",
            Self::Tf32 => "tf32",
            Self::Fp32 => "fp32",
        }
    }

    /// Reads [`Dtype::name`] and the names that frameworks use, in any case.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.trim().to_ascii_lowercase();
        let name = name.strip_prefix("torch.").unwrap_or(&name);
        Some(match name {
            "bfloat16" => Self::Bf16,
            "float16" | "half" => Self::Fp16,
            "float8" | "e4m3" | "float8_e4m3fn" | "float8_e5m2" | "hybrid" => Self::Fp8,
            "mxfp4" | "nvfp4" => Self::Fp4,
            "float32" | "float" => Self::Fp32,
            _ => return Self::ALL.into_iter().find(|dtype| dtype.name() == name),
        })
    }
}

/// Where a row's figures are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// The document.
    pub title: &'static str,
    /// Its address.
    pub url: &'static str,
}

/// When the figures were read.
pub const AS_OF: &str = "2026-11";

const NVIDIA: Source =
    Source { title: "NVIDIA data sheets", url: "https://www.nvidia.com/en-us/data-center/" };
const GEFORCE: Source = Source {
    title: "NVIDIA architecture papers",
    url: "https://www.nvidia.com/en-us/geforce/graphics-cards/",
};
const AMD: Source = Source {
    title: "AMD Instinct data sheets",
    url: "https://www.amd.com/en/products/accelerators/instinct.html",
};
const GOOGLE: Source =
    Source { title: "Cloud TPU system architecture", url: "https://docs.cloud.google.com/tpu/docs" };

/// An accelerator. All figures are dense and of one device as its driver counts them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gpu {
    /// How settings name it, such as `h100-sxm`.
    pub id: &'static str,
    /// Words that the driver's name has, all of them; `A|B` is either.
    words: &'static [&'static str],
    /// TFLOP/s in the order of [`Dtype::ALL`]; 0 where the device has none or its figure is disputed.
    tflops: [f64; 6],
    /// Memory, GB.
    pub memory_gb: f64,
    /// Memory traffic, TB/s.
    pub memory_tb_per_second: f64,
    /// Share of the BF16 peak that large matrix products were seen to reach, where somebody measured it.
    pub achievable: Option<f64>,
    /// Where the figures are from.
    pub source: Source,
    /// What to know about them; empty when nothing.
    pub note: &'static str,
}

impl Gpu {
    /// Peak of a format, FLOP/s.
    pub fn flops(&self, dtype: Dtype) -> Option<f64> {
        let at = Dtype::ALL.iter().position(|known| *known == dtype)?;
        Some(self.tflops[at] * 1e12).filter(|flops| *flops > 0.0)
    }

    /// Peak of memory traffic, bytes per second.
    pub fn memory_bytes_per_second(&self) -> f64 {
        self.memory_tb_per_second * 1e12
    }

    const fn seen(mut self, achievable: f64) -> Self {
        self.achievable = Some(achievable);
        self
    }

    const fn note(mut self, note: &'static str) -> Self {
        self.note = note;
        self
    }
}

/// Formats in the order BF16 and FP16, FP8, FP4, TF32, FP32; memory in GB and TB/s.
const fn gpu(
    id: &'static str,
    words: &'static [&'static str],
    [half, fp8, fp4, tf32, fp32]: [f64; 5],
    [memory_gb, memory_tb_per_second]: [f64; 2],
    source: Source,
) -> Gpu {
    let tflops = [half, half, fp8, fp4, tf32, fp32];
    Gpu { id, words, tflops, memory_gb, memory_tb_per_second, achievable: None, source, note: "" }
}

/// Every known accelerator; of two rows that fit a name the earlier one counts.
pub const GPUS: [Gpu; 30] = [
    gpu("a100-sxm-80", &["A100", "SXM|SXM4", "80GB"], [312.0, 0.0, 0.0, 156.0, 19.5], [80.0, 2.039], NVIDIA)
        .seen(0.87),
    gpu("a100-sxm-40", &["A100", "SXM|SXM4"], [312.0, 0.0, 0.0, 156.0, 19.5], [40.0, 1.555], NVIDIA)
        .seen(0.87),
    gpu("a100-pcie-80", &["A100", "PCIE", "80GB"], [312.0, 0.0, 0.0, 156.0, 19.5], [80.0, 1.935], NVIDIA)
        .note("its power limit is reached before its peak"),
    gpu("a100-pcie-40", &["A100", "PCIE"], [312.0, 0.0, 0.0, 156.0, 19.5], [40.0, 1.555], NVIDIA)
        .note("its power limit is reached before its peak"),
    gpu("h100-pcie", &["H100", "PCIE"], [756.0, 1_513.0, 0.0, 378.0, 51.0], [80.0, 2.0], NVIDIA),
    gpu("h100-nvl", &["H100", "NVL"], [835.0, 1_671.0, 0.0, 417.0, 60.0], [94.0, 3.9], NVIDIA),
    gpu("h100-sxm", &["H100", "HBM3|SXM|SXM5"], [989.0, 1_979.0, 0.0, 494.7, 67.0], [80.0, 3.35], NVIDIA)
        .seen(794.5 / 989.0)
        .note("the architecture paper says 989.4"),
    gpu("h20", &["H20"], [148.0, 296.0, 0.0, 74.0, 44.0], [96.0, 4.0], NVIDIA),
    gpu("h200-nvl", &["H200", "NVL"], [835.0, 1_671.0, 0.0, 417.0, 60.0], [141.0, 4.8], NVIDIA),
    gpu("h200-sxm", &["H200"], [989.4, 1_978.9, 0.0, 494.7, 67.0], [141.0, 4.8], NVIDIA),
    gpu("b200", &["B200"], [2_250.0, 4_500.0, 9_000.0, 1_125.0, 0.0], [180.0, 8.0], NVIDIA)
        .seen(0.78)
        .note("its memory is sold as 192 GB; sources differ on FP32, from 75 to 80"),
    gpu("gb200", &["GB200"], [2_500.0, 5_000.0, 10_000.0, 1_250.0, 0.0], [186.0, 8.0], NVIDIA)
        .note("sources differ on FP32, from 80 to 90"),
    gpu("b300", &["B300"], [2_250.0, 4_500.0, 0.0, 1_125.0, 0.0], [270.0, 8.0], NVIDIA)
        .note("sources differ on FP4, from 12,600 to 15,000, and on memory, from 270 to 288 GB"),
    gpu("gb300", &["GB300"], [2_500.0, 5_000.0, 15_000.0, 1_250.0, 0.0], [279.0, 8.0], NVIDIA)
        .note("sources differ on memory, from 279 to 288 GB"),
    gpu("l40s", &["L40S"], [362.0, 733.0, 0.0, 183.0, 91.6], [48.0, 0.864], NVIDIA),
    gpu("l4", &["L4"], [121.0, 242.5, 0.0, 60.0, 30.3], [24.0, 0.3], NVIDIA),
    gpu("a10", &["A10"], [125.0, 0.0, 0.0, 62.5, 31.2], [24.0, 0.6], NVIDIA),
    gpu("rtx-4090", &["RTX", "4090"], [165.2, 330.3, 0.0, 82.6, 82.6], [24.0, 1.008], GEFORCE)
        .note("with 32-bit accumulators, as training uses; twice that with 16-bit ones"),
    gpu("rtx-5090", &["RTX", "5090"], [209.5, 419.0, 1_676.0, 104.8, 104.8], [32.0, 1.792], GEFORCE)
        .note("with 32-bit accumulators, as training uses"),
    gpu("rtx-6000-ada", &["RTX", "6000", "ADA"], [364.0, 728.0, 0.0, 182.0, 91.1], [48.0, 0.96], NVIDIA),
    gpu(
        "rtx-pro-6000",
        &["RTX", "PRO", "6000", "BLACKWELL"],
        [504.0, 1_008.0, 2_000.0, 252.0, 0.0],
        [96.0, 1.6],
        NVIDIA,
    ),
    gpu("mi250x-gcd", &["MI250X"], [191.5, 0.0, 0.0, 0.0, 0.0], [64.0, 1.64], AMD)
        .note("one of the two dies that a card shows as devices; the card has twice that"),
    gpu("mi300x", &["MI300X"], [1_307.4, 2_614.9, 0.0, 653.7, 163.4], [192.0, 5.3], AMD).seen(0.51),
    gpu("mi325x", &["MI325X"], [1_307.4, 2_614.9, 0.0, 653.7, 163.4], [256.0, 6.0], AMD).seen(0.60),
    gpu("mi355x", &["MI355X"], [2_500.0, 5_000.0, 10_100.0, 0.0, 157.3], [288.0, 8.0], AMD)
        .seen(0.68)
        .note("some documents say 2,516 for BF16"),
    gpu("tpu-v4", &["TPU", "V4"], [275.0, 0.0, 0.0, 0.0, 0.0], [32.0, 1.2], GOOGLE),
    gpu("tpu-v5e", &["TPU", "V5E"], [197.0, 0.0, 0.0, 0.0, 0.0], [16.0, 0.82], GOOGLE),
    gpu("tpu-v5p", &["TPU", "V5P"], [459.0, 0.0, 0.0, 0.0, 0.0], [95.0, 2.76], GOOGLE),
    gpu("tpu-v6e", &["TPU", "V6E"], [918.0, 0.0, 0.0, 0.0, 0.0], [32.0, 1.64], GOOGLE),
    gpu("tpu-v7x", &["TPU", "V7X"], [2_307.0, 4_614.0, 0.0, 0.0, 0.0], [192.0, 7.4], GOOGLE)
        .note("memory and its traffic are not confirmed"),
];

/// Words that make a device another one than its name says at first: a slice, a laptop's, a market's.
const OTHERS: [&str; 6] = ["MIG", "LAPTOP", "MAX", "D", "SUPER", "TI"];

/// Why a device has no peak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPeak {
    /// No row fits its name.
    UnknownDevice,
    /// It is a slice of a GPU, and the peak is the whole one's.
    Slice,
}

/// The row of a device, by the driver's name for it (`NVIDIA H100 80GB HBM3`) or by [`Gpu::id`].
///
/// Whole words count, so that an A100 is no A10 and an L40S no L4.
pub fn find(name: &str) -> Result<&'static Gpu, NoPeak> {
    let upper = name.trim().to_ascii_uppercase();
    if let Some(gpu) = GPUS.iter().find(|gpu| gpu.id.eq_ignore_ascii_case(&upper)) {
        return Ok(gpu);
    }
    let words: Vec<&str> =
        upper.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()).collect();
    if words.contains(&"MIG") {
        return Err(NoPeak::Slice);
    }
    if words.iter().any(|word| OTHERS.contains(word)) {
        return Err(NoPeak::UnknownDevice);
    }
    let has = |either: &str| either.split('|').any(|word| words.contains(&word));
    let fits = |gpu: &&Gpu| gpu.words.iter().all(|word| has(word));
    GPUS.iter().find(fits).ok_or(NoPeak::UnknownDevice)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn drivers_names_find_their_row() {
        let check = |name: &str, want: &str| assert_eq!(find(name).map(|gpu| gpu.id), Ok(want), "{name}");
        check("NVIDIA A100-SXM4-80GB", "a100-sxm-80");
        check("NVIDIA A100-SXM4-40GB", "a100-sxm-40");
        check("NVIDIA A100 80GB PCIe", "a100-pcie-80");
        check("NVIDIA A100-PCIE-40GB", "a100-pcie-40");
        check("NVIDIA H100 80GB HBM3", "h100-sxm");
        check("NVIDIA H100 PCIe", "h100-pcie");
        check("NVIDIA H100 NVL", "h100-nvl");
        check("NVIDIA H200", "h200-sxm");
        check("NVIDIA H200 NVL", "h200-nvl");
        check("NVIDIA H20", "h20");
        check("NVIDIA B200", "b200");
        check("NVIDIA GB200", "gb200");
        check("NVIDIA L40S", "l40s");
        check("NVIDIA L4", "l4");
        check("NVIDIA A10", "a10");
        check("NVIDIA GeForce RTX 4090", "rtx-4090");
        check("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada");
        check("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000");
        check("AMD Instinct MI300X", "mi300x");
        check("h100-sxm", "h100-sxm");
        check("H100-SXM", "h100-sxm");
    }

    #[test]
    fn what_is_not_known_has_no_peak() {
        let check = |name: &str, want: NoPeak| assert_eq!(find(name).map(|gpu| gpu.id), Err(want), "{name}");
        check("NVIDIA H100", NoPeak::UnknownDevice);
        check("NVIDIA L40", NoPeak::UnknownDevice);
        check("NVIDIA A10G", NoPeak::UnknownDevice);
        check("NVIDIA GeForce RTX 4090 Laptop GPU", NoPeak::UnknownDevice);
        check("NVIDIA GeForce RTX 4090 D", NoPeak::UnknownDevice);
        check("NVIDIA H100 80GB HBM3 MIG 1g.10gb", NoPeak::Slice);
        check("", NoPeak::UnknownDevice);
    }

    #[test]
    fn a_longer_word_is_another_device() {
        for gpu in &GPUS {
            for end in ["0", "1", "S", "X", "G"] {
                let longer = |word: &&str| format!("{}{end}", word.split('|').next().unwrap());
                for at in 0..gpu.words.len() {
                    let mut words: Vec<String> =
                        gpu.words.iter().map(|word| word.split('|').next().unwrap().to_owned()).collect();
                    words[at] = longer(&gpu.words[at]);
                    let name = words.join(" ");
                    let found = find(&name).map(|found| found.id);
                    assert_ne!(found, Ok(gpu.id), "{name}");
                }
            }
        }
        assert_eq!(find("NVIDIA A100-SXM4-80GB").map(|gpu| gpu.id), Ok("a100-sxm-80"), "no A10");
        assert_eq!(find("NVIDIA L40S").map(|gpu| gpu.id), Ok("l40s"), "no L4");
        assert_eq!(find("NVIDIA X900").map(|gpu| gpu.id), Err(NoPeak::UnknownDevice));
    }

    #[test]
    fn figures_are_dense_and_of_the_format_asked_for() {
        let h100 = find("h100-sxm").unwrap();
        assert_eq!(h100.flops(Dtype::Bf16), Some(989e12));
        assert_eq!(h100.flops(Dtype::Fp8), Some(1_979e12));
        assert_eq!(h100.flops(Dtype::Fp4), None, "it has none");
        assert_eq!(h100.memory_bytes_per_second(), 3.35e12);
        assert_eq!(find("b300").unwrap().flops(Dtype::Fp4), None, "sources differ");
        for gpu in &GPUS {
            let [half, _, fp8, fp4, tf32, _] = gpu.tflops;
            assert!(half > 0.0 && gpu.memory_gb > 0.0 && gpu.memory_tb_per_second > 0.0, "{}", gpu.id);
            // Each halving of the format doubles the rate, a few marketing roundings apart; four times is sparse.
            for (wide, narrow) in [(tf32, half), (half, fp8)] {
                let ratio = narrow / wide;
                assert!(wide == 0.0 || narrow == 0.0 || (1.9..2.1).contains(&ratio), "{}: {ratio}", gpu.id);
            }
            assert!(fp4 == 0.0 || (1.9..4.1).contains(&(fp4 / fp8)), "{}", gpu.id);
            assert!(gpu.achievable.is_none_or(|share| (0.3..1.0).contains(&share)), "{}", gpu.id);
            assert!(gpu.source.url.starts_with("https://"), "{}", gpu.id);
        }
    }

    #[test]
    fn ids_are_unique_and_find_their_own_row() {
        let ids: BTreeSet<&str> = GPUS.iter().map(|gpu| gpu.id).collect();
        assert_eq!(ids.len(), GPUS.len());
        for gpu in &GPUS {
            assert_eq!(find(gpu.id).map(|found| found.id), Ok(gpu.id));
        }
    }

    #[test]
    fn formats_have_the_names_of_frameworks() {
        for dtype in Dtype::ALL {
            assert_eq!(Dtype::named(dtype.name()), Some(dtype));
        }
        assert_eq!(Dtype::named("torch.bfloat16"), Some(Dtype::Bf16));
        assert_eq!(Dtype::named("FP16"), Some(Dtype::Fp16));
        assert_eq!(Dtype::named("int8"), None);
    }

    proptest! {
        #[test]
        fn any_name_is_answered(name in ".{0,60}") {
            let _any = find(&name);
            let _dtype = Dtype::named(&name);
        }
    }
}
