//! What is done on a data directory that no server has open.

use std::path::{Path, PathBuf};

use store::{Backup, BackupError, OpenError, Store};

use crate::export::{Ask, Export, ExportError, Format, Unusable};

/// A directory, taken until this is dropped.
#[derive(Debug)]
pub struct Directory(Store);

/// Why something can't be done on a directory.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    /// There is no store.
    #[error("`{dir}` is no data directory: it has no `catalogue.redb`")]
    NoStore {
        /// The directory.
        dir: PathBuf,
    },
    /// The store can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// What is asked for can't be used.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// The export can't go on.
    #[error("{0}")]
    Export(String),
    /// There is no backup.
    #[error(transparent)]
    Backup(#[from] BackupError),
}

impl OfflineError {
    /// The next step.
    pub fn hint(&self) -> String {
        match self {
            Self::NoStore { .. } => "name the directory that `truegauge up --data-dir` has".into(),
            Self::Open(OpenError::Locked { .. }) => {
                "leave `--data-dir` away: the server that has it is asked then".into()
            }
            Self::Open(_) => "check that the directory is yours and its disk is not full".into(),
            Self::Unusable(unusable) => unusable.hint.clone(),
            Self::Export(_) => "select fewer kinds of series at once, one metric say".into(),
            Self::Backup(_) => "`docs/guides/backup.md` says what is wanted of the folder".into(),
        }
    }
}

impl From<ExportError> for OfflineError {
    fn from(error: ExportError) -> Self {
        Self::Export(error.to_string())
    }
}

impl Directory {
    /// Takes a directory, as a server does; what a crash left half done is finished.
    pub fn open(dir: &Path) -> Result<Self, OfflineError> {
        if !dir.join("catalogue.redb").is_file() {
            return Err(OfflineError::NoStore { dir: dir.to_owned() });
        }
        Ok(Self(Store::open(dir, store::Options::default())?))
    }

    /// Ids of the runs of this name.
    pub fn runs_named(&self, name: &str) -> Vec<String> {
        let runs = self.0.runs();
        runs.iter().filter(|run| run.path.run == name).map(|run| run.id().to_string()).collect()
    }

    /// Begins an export.
    pub fn export(&self, ask: &Ask, format: Format) -> Result<Pieces<'_>, OfflineError> {
        let export = Export::new(&self.0, &ask.selection()?, format)?;
        Ok(Pieces { store: &self.0, export })
    }

    /// Makes a copy of the store in `to_dir`, which must not exist.
    pub fn backup(&self, to_dir: &Path) -> Result<Backup, OfflineError> {
        Ok(self.0.backup(to_dir)?)
    }
}

/// A file, piece by piece.
pub struct Pieces<'d> {
    store: &'d Store,
    export: Export,
}

impl Pieces<'_> {
    /// How many series the file has.
    pub fn series(&self) -> u64 {
        self.export.series() as u64
    }

    /// How many points it has at most: those of its series over all of time.
    pub fn points_max(&self) -> u64 {
        self.export.points_max
    }

    /// The next bytes; none when it is complete.
    pub fn next_bytes(&mut self) -> Result<Option<Vec<u8>>, OfflineError> {
        Ok(self.export.next(self.store)?)
    }
}
