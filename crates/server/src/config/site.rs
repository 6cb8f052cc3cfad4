//! Facts of a site that no machine tells: what its cards cost, what its building adds, what is promised of the
//! models that it serves.

use model::nearest;
use semconv::peaks::{self, GPUS, Gpu};

use super::{Field, Shape, field, one};

/// Facts of a site.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SiteConfig {
    /// What an hour of a card costs, by card.
    pub prices: Vec<Price>,
    /// Which list of prices they are from; empty where none is named.
    pub price_revision: String,
    /// Power of the whole site over that of its machines.
    pub pue: Option<f64>,
    /// Power of a machine over that of its cards.
    pub server_overhead_factor: Option<f64>,
    /// What is promised of models.
    pub objectives: Vec<Objectives>,
    /// Cards that serve a model, where nothing else tells.
    pub engine_gpus: Vec<EngineGpus>,
}

/// The price of a card.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// The card's row in the catalogue.
    pub gpu: &'static Gpu,
    /// US dollars for an hour of one card.
    pub usd_per_gpu_hour: f64,
}

/// What is promised of a model: latencies in seconds, and the share of requests that keep to them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Objectives {
    /// The model, as it is served.
    pub model: String,
    /// Time to the first token.
    pub ttft: Option<f64>,
    /// Time per further token, of a request.
    pub tpot: Option<f64>,
    /// Time between two tokens.
    pub itl: Option<f64>,
    /// Share of requests that meet all of these.
    pub goodput: Option<f64>,
}

/// Cards that serve a model.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineGpus {
    /// The model, as it is served.
    pub model: String,
    /// The card's row in the catalogue.
    pub gpu: &'static Gpu,
    /// How many.
    pub count: u32,
}

/// Those settings.
pub(super) const FIELDS: [Field; 6] = [
    field(
        "site_prices",
        "site-prices",
        Shape::List,
        "",
        "Price of an hour of one card in US dollars, such as `h100-sxm=2.50`",
        |c, v| {
            c.site.prices = each(v, price)?;
            let twice = |a: &Price, b: &Price| a.gpu.id == b.gpu.id;
            no_two(&c.site.prices, twice, |price| price.gpu.id)
        },
    ),
    field(
        "site_price_revision",
        "site-price-revision",
        Shape::Text,
        "",
        "Which list these prices are from, such as `2026-11`; a label of everything that is reckoned from them",
        |c, v| {
            one(v)?.trim().clone_into(&mut c.site.price_revision);
            Ok(())
        },
    ),
    field(
        "site_pue",
        "site-pue",
        Shape::Text,
        "",
        "Power of the whole site over that of its machines, such as `1.3`; unknown unless given",
        |c, v| {
            c.site.pue = Some(factor(one(v)?)?);
            Ok(())
        },
    ),
    field(
        "site_server_overhead_factor",
        "site-server-overhead-factor",
        Shape::Text,
        "",
        "Power of a machine over that of its cards, such as `1.4`; unknown unless given",
        |c, v| {
            c.site.server_overhead_factor = Some(factor(one(v)?)?);
            Ok(())
        },
    ),
    field(
        "site_objectives",
        "site-objectives",
        Shape::List,
        "",
        "What is promised of a served model, in seconds and as a share of requests, such as `chat-70b ttft=2 tpot=0.06 itl=0.2 goodput=0.95`",
        |c, v| {
            c.site.objectives = each(v, objectives)?;
            let twice = |a: &Objectives, b: &Objectives| a.model == b.model;
            no_two(&c.site.objectives, twice, |of| &of.model)
        },
    ),
    field(
        "site_engine_gpus",
        "site-engine-gpus",
        Shape::List,
        "",
        "Cards that serve a model where neither its pod nor its host tells, such as `chat-70b=h100-sxm*8`",
        |c, v| {
            c.site.engine_gpus = each(v, engine_gpus)?;
            let twice = |a: &EngineGpus, b: &EngineGpus| a.model == b.model;
            no_two(&c.site.engine_gpus, twice, |of| &of.model)
        },
    ),
];

fn each<T>(texts: &[String], read: fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    texts.iter().map(|text| read(text.trim())).collect()
}

fn no_two<T>(all: &[T], same: fn(&T, &T) -> bool, name: fn(&T) -> &str) -> Result<(), String> {
    for (at, one) in all.iter().enumerate() {
        if all[..at].iter().any(|before| same(before, one)) {
            return Err(format!("`{}` is given twice; one of the two is to go", name(one)));
        }
    }
    Ok(())
}

/// A card by its row in the catalogue, or by the driver's name for it.
fn gpu(name: &str) -> Result<&'static Gpu, String> {
    let name = name.trim();
    peaks::find(name).map_err(|why| match why {
        peaks::NoPeak::Slice => format!("`{name}` is a part of a card, and a price is of a whole one"),
        peaks::NoPeak::UnknownDevice => {
            let ids: Vec<&str> = GPUS.iter().map(|gpu| gpu.id).collect();
            let meant = nearest(name, ids.iter().copied()).map(|id| format!("; did you mean `{id}`?"));
            format!("the card `{name}` is not known{} Known are {}", meant.unwrap_or_else(|| ".".into()), {
                ids.join(", ")
            })
        }
    })
}

/// Reads `h100-sxm=2.50`.
fn price(text: &str) -> Result<Price, String> {
    let example = "wanted a card and the dollars for an hour of it, such as `h100-sxm=2.50`";
    let (card, dollars) = text.rsplit_once('=').ok_or_else(|| format!("found `{text}`, {example}"))?;
    let gpu = gpu(card)?;
    if dollars.trim().is_empty() {
        return Err(format!("`{}` has no price: {example}", card.trim()));
    }
    let wrong = || format!("the price of `{}` is `{}`, {example}", card.trim(), dollars.trim());
    let usd_per_gpu_hour = positive(dollars).ok_or_else(wrong)?;
    Ok(Price { gpu, usd_per_gpu_hour })
}

/// Reads `chat-70b ttft=2 goodput=0.95`.
fn objectives(text: &str) -> Result<Objectives, String> {
    let mut words = text.split_whitespace();
    let model = words.next().filter(|word| !word.contains('=')).ok_or_else(|| {
        format!("found `{text}`, wanted a model and its objectives, such as `chat-70b ttft=2 goodput=0.95`")
    })?;
    let mut found = Objectives { model: model.to_owned(), ..Objectives::default() };
    let mut is_empty = true;
    for word in words {
        let (kind, value) = word.split_once('=').unwrap_or((word, ""));
        let place = match kind {
            "ttft" => &mut found.ttft,
            "tpot" => &mut found.tpot,
            "itl" => &mut found.itl,
            "goodput" => &mut found.goodput,
            _ => {
                return Err(format!(
                    "`{kind}` of `{model}` is no objective; known are `ttft`, `tpot`, `itl` and `goodput`"
                ));
            }
        };
        let number = positive(value).filter(|value| kind != "goodput" || *value <= 1.0);
        let wanted = if kind == "goodput" { "a share above 0 and up to 1" } else { "seconds above 0" };
        let number = number.ok_or_else(|| format!("`{kind}` of `{model}` is `{value}`, wanted {wanted}"))?;
        if place.replace(number).is_some() {
            return Err(format!("`{kind}` of `{model}` is given twice"));
        }
        is_empty = false;
    }
    if is_empty {
        return Err(format!("`{model}` has no objective; known are `ttft`, `tpot`, `itl` and `goodput`"));
    }
    Ok(found)
}

/// Reads `chat-70b=h100-sxm*8`.
fn engine_gpus(text: &str) -> Result<EngineGpus, String> {
    let wrong = || format!("found `{text}`, wanted a model and its cards, such as `chat-70b=h100-sxm*8`");
    let (model, cards) = text.rsplit_once('=').ok_or_else(wrong)?;
    let (card, count) = cards.rsplit_once('*').unwrap_or((cards, "1"));
    let count = count.trim().parse().ok().filter(|count| *count > 0).ok_or_else(wrong)?;
    let model = model.trim();
    if model.is_empty() {
        return Err(wrong());
    }
    Ok(EngineGpus { model: model.to_owned(), gpu: gpu(card)?, count })
}

fn positive(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)
}

/// A factor by which power grows.
fn factor(text: &str) -> Result<f64, String> {
    positive(text)
        .filter(|factor| *factor >= 1.0)
        .ok_or_else(|| format!("found `{text}`, wanted a factor of at least 1, such as `1.3`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_of_a_card_by_either_of_its_names() {
        let by_id = price("h100-sxm = 2.50").unwrap();
        assert_eq!((by_id.gpu.id, by_id.usd_per_gpu_hour), ("h100-sxm", 2.5));
        assert_eq!(price("NVIDIA H100 80GB HBM3=2.50"), Ok(by_id));
    }

    #[test]
    fn bad_prices_say_what_was_found_and_what_is_wanted() {
        let check = |text: &str, want: &str| {
            let found = price(text).unwrap_err();
            assert!(found.contains(want), "{text}: {found}");
        };
        check("h100-sxm=-1", "the price of `h100-sxm` is `-1`, wanted a card and the dollars");
        check("h100-sxm=0", "the price of `h100-sxm` is `0`");
        check("h100-sxm=NaN", "the price of `h100-sxm` is `NaN`");
        check("h100-sxm=", "`h100-sxm` has no price");
        check("h100-sxm", "found `h100-sxm`, wanted a card");
        check(
            "h100-smx=2",
            "the card `h100-smx` is not known; did you mean `h100-sxm`? Known are a100-sxm-80, ",
        );
        check("NVIDIA X900=2", "the card `NVIDIA X900` is not known. Known are a100-sxm-80, ");
        check("NVIDIA H100 80GB HBM3 MIG 1g.10gb=2", "is a part of a card");
    }

    #[test]
    fn objectives_are_read_by_kind() {
        let found = objectives("chat-70b ttft=2 tpot=0.06 itl=0.2 goodput=0.95").unwrap();
        let want = Objectives {
            model: "chat-70b".into(),
            ttft: Some(2.0),
            tpot: Some(0.06),
            itl: Some(0.2),
            goodput: Some(0.95),
        };
        assert_eq!(found, want);
        let check = |text: &str, want: &str| {
            let found = objectives(text).unwrap_err();
            assert!(found.contains(want), "{text}: {found}");
        };
        check("ttft=2", "wanted a model and its objectives");
        check("chat-70b", "`chat-70b` has no objective; known are `ttft`");
        check("chat-70b e2e=2", "`e2e` of `chat-70b` is no objective; known are `ttft`, `tpot`, `itl`");
        check("chat-70b ttft=-2", "`ttft` of `chat-70b` is `-2`, wanted seconds above 0");
        check("chat-70b goodput=95", "`goodput` of `chat-70b` is `95`, wanted a share");
        check("chat-70b ttft=2 ttft=3", "given twice");
    }

    #[test]
    fn cards_of_a_model_have_a_kind_and_a_number() {
        let found = engine_gpus("meta/chat-70b=h100-sxm*8").unwrap();
        assert_eq!((&*found.model, found.gpu.id, found.count), ("meta/chat-70b", "h100-sxm", 8));
        assert_eq!(engine_gpus("chat=l4").map(|one| one.count), Ok(1));
        for wrong in ["chat", "=l4*2", "chat=l4*0", "chat=l4*x", "chat=x900*2"] {
            assert!(engine_gpus(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_factor_only_adds_and_nothing_is_given_twice() {
        assert_eq!(factor("1.3"), Ok(1.3));
        assert!(factor("0.9").unwrap_err().contains("at least 1"));
        let prices = each(&["h100-sxm=2".into(), "NVIDIA H100 80GB HBM3=3".into()], price).unwrap();
        let twice = no_two(&prices, |a, b| a.gpu.id == b.gpu.id, |price| price.gpu.id);
        assert_eq!(twice, Err("`h100-sxm` is given twice; one of the two is to go".into()));
    }
}
