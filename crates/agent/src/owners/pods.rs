//! The names of pods by their UIDs: the kubelet keeps a folder of logs for each,
//! `<namespace>_<pod>_<uid>`.

use std::collections::BTreeMap;
use std::path::Path;

use super::files::entries;

/// Most folders that are looked at.
const ENTRIES_MAX: usize = 4_096;

/// Namespace and name of every pod by its UID.
pub(super) fn names(logs: &Path) -> BTreeMap<String, (String, String)> {
    let named = entries(logs, ENTRIES_MAX).into_iter().filter_map(|path| {
        let mut parts = path.file_name()?.to_str()?.splitn(3, '_').map(str::to_owned);
        let (namespace, pod, uid) = (parts.next()?, parts.next()?, parts.next()?);
        Some((uid.to_ascii_lowercase(), (namespace, pod)))
    });
    named.collect()
}
