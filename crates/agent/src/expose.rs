//! A look as a page of metrics in Prometheus' text format.

use std::fmt::Write as _;

use model::{Desc, MetricKind};

use crate::tick::Reading;

/// What `/metrics` says it is.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The page under our names: families in the order in which they come first.
pub(crate) fn page(host: &str, readings: &[Reading]) -> String {
    let mut families: Vec<(&'static Desc, Vec<&Reading>)> = Vec::new();
    let mut places: std::collections::HashMap<&'static str, usize> = std::collections::HashMap::new();
    for reading in readings {
        let at = *places.entry(reading.desc.name).or_insert_with(|| {
            families.push((reading.desc, Vec::new()));
            families.len() - 1
        });
        families[at].1.push(reading);
    }
    let mut page = String::with_capacity(readings.len() * 160);
    for (desc, readings) in families {
        head(&mut page, desc.name, desc.kind == MetricKind::Counter, &help(desc));
        for reading in readings {
            page.push_str(desc.name);
            page.push_str("{host=\"");
            escape(&mut page, host);
            page.push('"');
            for (name, value) in reading.labels.iter().filter(|(_, value)| !value.is_empty()) {
                let _ = write!(page, ",{name}=\"");
                escape(&mut page, value);
                page.push('"');
            }
            let _ = writeln!(page, "}} {}", reading.value);
        }
    }
    page
}

fn help(desc: &Desc) -> String {
    if desc.caveat.is_empty() { desc.help.to_owned() } else { format!("{} {}", desc.help, desc.caveat) }
}

pub(crate) fn head(page: &mut String, name: &str, is_counter: bool, help: &str) {
    let help = help.replace('\\', "\\\\").replace('\n', "\\n");
    let kind = if is_counter { "counter" } else { "gauge" };
    let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

pub(crate) fn escape(page: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => page.push_str("\\\\"),
            '"' => page.push_str("\\\""),
            '\n' => page.push_str("\\n"),
            c => page.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_stand_together_and_labels_are_escaped() {
        const A: Desc = Desc::gauge("a_watts", model::Unit::Watts, &["host"], "A.").caveat("It lies.");
        const B: Desc = Desc::counter("b_total", model::Unit::None, &["host", "x"], "B\\\n.");
        let reading = |desc: &'static Desc, labels: &[(&'static str, &str)], value: f64| Reading {
            desc,
            labels: labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
            value,
        };
        let readings = [
            reading(&A, &[], 1.5),
            reading(&B, &[("x", "q\"\\\n"), ("y", "")], 2e15),
            reading(&A, &[("gpu", "1")], -0.25),
        ];
        assert_eq!(
            page("n\"1", &readings),
            "# HELP a_watts A. It lies.\n# TYPE a_watts gauge\na_watts{host=\"n\\\"1\"} 1.5\na_watts{host=\"n\\\"1\",gpu=\"1\"} -0.25\n\
             # HELP b_total B\\\\\\n.\n# TYPE b_total counter\nb_total{host=\"n\\\"1\",x=\"q\\\"\\\\\\n\"} 2000000000000000\n"
        );
    }
}
