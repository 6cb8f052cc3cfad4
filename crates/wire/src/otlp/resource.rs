//! Who sends: the resource of a request, and what of it becomes labels, a run, a rank.

use model::{LABELS_PER_SERIES_MAX, Labels, REFUSED_LABELS, RESERVED_LABELS, RunId, RunPath};

use super::proto::Fields;
use super::value::{Attributes, Value};
use super::{LABEL_BYTES_MAX, OtlpError, Refusal, names};

/// Names of a resource's attributes that become labels of every series, unless told otherwise.
pub const PROMOTED: [&str; 10] = [
    "service.name",
    "service.instance.id",
    "nemo.run.id",
    "nemo.user.id",
    "dl.rank",
    "nv.dl.rank",
    "host.name",
    "slurm.job.id",
    "k8s.pod.name",
    "deployment.environment",
];

/// Never a label, not even when all attributes are asked for: each value would be a series of its own.
const NEVER_PROMOTED: [&str; 1] = ["process.pid"];

/// Labels by which a training step would get in. Each value would be a series of its own.
const STEP_LABELS: [&str; 3] = ["dl_iteration", "nv_dl_iteration", "megatron_iteration"];

/// Labels that the store or the kind of a metric sets; an attribute of that name gets `exported_` in front.
const OWN_LABELS: [&str; 5] = ["job", "instance", "display", "le", "quantile"];

/// Which attributes of a resource become labels of every series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promotion {
    /// All of them.
    pub all: bool,
    /// These, by key.
    pub keys: Vec<String>,
    /// Not these, whatever the two above say.
    pub ignored: Vec<String>,
}

impl Default for Promotion {
    /// The keys of [`PROMOTED`].
    fn default() -> Self {
        Self { all: false, keys: PROMOTED.map(str::to_owned).into(), ignored: Vec::new() }
    }
}

impl Promotion {
    fn takes(&self, key: &str) -> bool {
        let named = |list: &[String]| list.iter().any(|k| k == key);
        (self.all || named(&self.keys)) && !named(&self.ignored) && !NEVER_PROMOTED.contains(&key)
    }
}

/// The resource of a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resource<'a> {
    /// Its attributes.
    pub attributes: Attributes<'a>,
    /// Its bytes: equal bytes are equal resources.
    pub bytes: &'a [u8],
}

impl<'a> Resource<'a> {
    /// Reads the message `Resource`.
    pub(crate) fn read(message: &'a [u8]) -> Result<Self, OtlpError> {
        let mut resource = Self { attributes: Attributes::default(), bytes: message };
        let mut fields = Fields(message);
        while let Some((number, field)) = fields.next()? {
            match number {
                1 => resource.attributes.push(field.bytes()?)?,
                2 => resource.attributes.left_out += field.int()?,
                _ => {}
            }
        }
        Ok(resource)
    }

    /// The text of the first of `keys` that is set to something.
    pub fn text(&self, keys: &[&str]) -> Option<String> {
        let texts = keys.iter().filter_map(|key| self.attributes.get(key)?.text().ok());
        texts.map(std::borrow::Cow::into_owned).find(|text| !text.is_empty())
    }

    /// The number under `dl.<key>` or `nv.dl.<key>`, which are two names of one field.
    pub fn dl_number(&self, key: &str) -> Option<i64> {
        ["nv.dl.", "dl."].iter().find_map(|prefix| self.attributes.get(&format!("{prefix}{key}"))?.number())
    }

    /// The label `job`: the service's name, its namespace in front where there is one.
    pub fn job(&self) -> Option<String> {
        let name = self.text(&["service.name"])?;
        Some(match self.text(&["service.namespace"]) {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name,
        })
    }

    /// The label `instance`.
    pub fn instance(&self) -> Option<String> {
        self.text(&["service.instance.id"])
    }

    /// The run it belongs to, where it names one.
    pub fn run(&self) -> Option<RunPath> {
        Some(RunPath {
            organization: String::new(),
            workspace: self.text(&["slurm.cluster.name"]).unwrap_or_default(),
            project: self.text(&["service.name"]).unwrap_or_default(),
            run: self.text(&["nemo.run.id"])?,
        })
    }

    /// The run that `tg.init` put into the environment; goes before [`Resource::run`].
    pub fn run_id(&self) -> Option<RunId> {
        RunId::parse(&self.text(&["truegauge.run_id"])?)
    }

    /// What differs between restarts of one run: an attempt for each value.
    pub fn incarnation(&self) -> Option<String> {
        self.text(&["nv.dl.run.uuid", "nemo.lens.run_uuid"])
    }

    /// The labels that every series of this resource carries: the run's, `job`, `instance` and the
    /// promoted attributes.
    pub fn labels(&self, promotion: &Promotion, run: Option<&RunPath>) -> Result<ResourceLabels, OtlpError> {
        let mut labels = Vec::new();
        for (key, value) in merged(&self.attributes, |key| promotion.takes(key))? {
            if refused(&key).is_none() && value.len() <= LABEL_BYTES_MAX {
                labels.push((key, value));
            }
        }
        // Two names of one field: what asks for the one finds those that send the other.
        let has_rank = labels.iter().any(|(key, _)| key == "dl_rank");
        if let Some((_, rank)) = labels.iter().find(|(key, _)| key == "nv_dl_rank" && !has_rank) {
            labels.push(("dl_rank".to_owned(), rank.clone()));
        }
        let mut own = |name: &str, value: Option<String>| {
            if let Some(value) = value.filter(|value| !value.is_empty() && value.len() <= LABEL_BYTES_MAX) {
                labels.push((name.to_owned(), value));
            }
        };
        own("job", self.job());
        own("instance", self.instance());
        if let Some(path) = run {
            own("organization", Some(path.organization.clone()));
            own("workspace", Some(path.workspace.clone()));
            own("project", Some(path.project.clone()));
            own("run", Some(path.run.clone()));
            own("run_id", Some(path.id().to_string()));
        }
        Ok(ResourceLabels(labels))
    }

    /// The series `target_info`: every attribute that is no label elsewhere, as far as a series has
    /// room for labels; how many did not fit comes with it. None without `job` and `instance`, which it
    /// would have to be joined by.
    pub fn target_info(&self, labels: &ResourceLabels) -> Result<Option<(Labels, usize)>, OtlpError> {
        let identity = ["service.name", "service.namespace", "service.instance.id"];
        let rest = merged(&self.attributes, |key| !identity.contains(&key))?;
        let mut set = Labels::builder();
        set.metric("target_info");
        let (mut room, mut left_out) = (LABELS_PER_SERIES_MAX - 1, 0);
        let own = labels
            .0
            .iter()
            .filter(|(name, _)| ["job", "instance"].contains(&&**name) || RESERVED_LABELS.contains(&&**name));
        for (name, value) in own {
            set.set(name.as_str(), value.as_str());
            room -= 1;
        }
        let fits =
            rest.into_iter().filter(|(key, value)| refused(key).is_none() && value.len() <= LABEL_BYTES_MAX);
        for (key, value) in fits {
            if room == 0 {
                left_out += 1;
            } else {
                set.set(key, value);
                room -= 1;
            }
        }
        let set = set.build();
        let joins = set.get("job").is_some() || set.get("instance").is_some();
        Ok(joins.then_some((set, left_out)))
    }
}

/// The labels of a resource, made once for all of its series.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceLabels(Vec<(String, String)>);

impl ResourceLabels {
    /// Labels of the series `name` with the attributes of a point; `more` labels are still to come.
    ///
    /// A point's own attribute wins over a promoted one of the same name. Points whose attributes never
    /// repeat or don't fit are refused: to leave the label out would merge their series.
    pub fn series(&self, name: &str, attributes: &Attributes<'_>, more: usize) -> Result<Labels, LabelFault> {
        let mut set = Labels::builder();
        let mut own: Vec<String> = Vec::new();
        if attributes.left_out > 0 {
            let found = attributes.list.len() as u64 + attributes.left_out;
            return Err(LabelFault::Refused(too_many(found)));
        }
        for (key, value) in merged(attributes, |_| true)? {
            if let Some(text) = refused(&key) {
                return Err(LabelFault::Refused(Refusal::told("label_refused", text)));
            }
            if key.len().max(value.len()) > LABEL_BYTES_MAX {
                return Err(LabelFault::Refused(Refusal::told(
                    "label_too_long",
                    format!(
                        "attribute {:?} has {} bytes, at most {LABEL_BYTES_MAX} are kept in a label",
                        key.chars().take(60).collect::<String>(),
                        key.len().max(value.len())
                    ),
                )));
            }
            set.set(key.as_str(), value);
            own.push(key);
        }
        for (key, value) in &self.0 {
            if !own.contains(key) {
                set.set(key.as_str(), value.as_str());
            }
        }
        let labels = set.metric(name).build();
        if labels.len() + more > LABELS_PER_SERIES_MAX {
            return Err(LabelFault::Refused(too_many((labels.len() + more) as u64)));
        }
        Ok(labels)
    }

    /// Name and value of each.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

fn too_many(found: u64) -> Refusal {
    Refusal::told(
        "label_count",
        format!(
            "{found} labels, at most {LABELS_PER_SERIES_MAX} are kept on a series: send fewer attributes"
        ),
    )
}

/// Why a point has no labels.
#[derive(Debug)]
pub enum LabelFault {
    /// This point is refused.
    Refused(Refusal),
    /// The body can't be read.
    Body(OtlpError),
}

impl From<OtlpError> for LabelFault {
    fn from(error: OtlpError) -> Self {
        Self::Body(error)
    }
}

/// Labels of the attributes that `takes` wants, in order of key. Keys that become one label are joined.
fn merged(
    attributes: &Attributes<'_>,
    takes: impl Fn(&str) -> bool,
) -> Result<Vec<(String, String)>, OtlpError> {
    let mut wanted: Vec<(&str, Value<'_>)> =
        attributes.list.iter().copied().filter(|(key, _)| takes(key)).collect();
    wanted.sort_by_key(|(key, _)| *key);
    let mut labels: Vec<(String, String)> = Vec::with_capacity(wanted.len());
    let mut last_key = "";
    for (key, value) in wanted {
        let Some(name) = names::label(key) else { continue };
        let text = value.text()?;
        let name = if is_own(&name) { format!("exported_{name}") } else { name.into_owned() };
        let at = labels.iter().position(|(known, _)| *known == name);
        match at {
            // The same key twice is a mistake of the sender's; the later value counts.
            Some(at) if key == last_key => labels[at].1 = text.into_owned(),
            Some(at) => {
                let value = &mut labels[at].1;
                value.push(';');
                value.push_str(&text);
            }
            None => labels.push((name, text.into_owned())),
        }
        last_key = key;
    }
    labels.retain(|(_, value)| !value.is_empty());
    Ok(labels)
}

fn is_own(label: &str) -> bool {
    OWN_LABELS.contains(&label) || RESERVED_LABELS.contains(&label)
}

/// Why a label of this name is refused, in words.
fn refused(label: &str) -> Option<String> {
    if label == "iteration" || STEP_LABELS.contains(&label) {
        return Some(format!(
            "the attribute `{label}` makes a series of every iteration: put it on the span, and let the metric's time tell the step"
        ));
    }
    REFUSED_LABELS.contains(&label).then(|| {
        format!(
            "the attribute `{label}` is refused as a label: each of its values would be a series of its own"
        )
    })
}
