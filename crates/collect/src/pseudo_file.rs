//! A file that is read again and again, kept open where that is right.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Largest part of a file that is read. The kernel's files are below it; of a longer one the head is used.
const READ_BYTES_MAX: usize = 64 * 1024;

/// Filesystems whose files show the present at every read of an open descriptor: proc, sysfs, cgroup
/// and cgroup2. Anywhere else a file may be replaced under its name, so it is opened at each read.
const LIVE_FILESYSTEMS: [u64; 4] = [0x9fa0, 0x6265_6572, 0x0027_e0eb, 0x6367_7270];

/// Why a file gave nothing.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// It is not there, or the kernel does not support what it would show.
    Absent,
    /// It is there; the text says what could not be done.
    Failed(String),
}

/// Room for one read, shared by all files of a sampler.
#[derive(Debug)]
pub(crate) struct Buffer(Box<[u8]>);

impl Buffer {
    pub(crate) fn new() -> Self {
        Self(vec![0; READ_BYTES_MAX].into_boxed_slice())
    }
}

/// A file that is read at each tick.
#[derive(Debug)]
pub(crate) struct PseudoFile {
    path: Arc<Path>,
    open: Option<File>,
}

impl PseudoFile {
    /// Names the file; it is opened by the first read.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path: path.into(), open: None }
    }

    /// Its path, shared: the name of a counter's source.
    pub(crate) fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// The file's bytes as they are now.
    pub(crate) fn read<'a>(&mut self, buffer: &'a mut Buffer) -> Result<&'a [u8], ReadError> {
        if let Some(file) = &self.open {
            match file.read_at(&mut buffer.0, 0) {
                Ok(length) => return Ok(&buffer.0[..length]),
                // The object behind the descriptor is gone (a cgroup removed, a process ended): its
                // name may by now stand for another one.
                Err(_) => self.open = None,
            }
        }
        match self.reopen_and_read(&mut buffer.0) {
            Ok(length) => Ok(&buffer.0[..length]),
            Err(error) => Err(self.explain(&error)),
        }
    }

    fn reopen_and_read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let file = File::open(&self.path)?;
        let length = file.read_at(bytes, 0)?;
        let kept =
            rustix::fs::fstatfs(&file).is_ok_and(|stat| LIVE_FILESYSTEMS.contains(&(stat.f_type as u64)));
        if kept {
            self.open = Some(file);
        }
        Ok(length)
    }

    /// The file's bytes, read once: nothing is kept open.
    pub(crate) fn read_once<'a>(path: &Path, buffer: &'a mut Buffer) -> io::Result<&'a [u8]> {
        let length = File::open(path)?.read_at(&mut buffer.0, 0)?;
        Ok(&buffer.0[..length])
    }

    fn explain(&self, error: &io::Error) -> ReadError {
        use rustix::io::Errno;
        let absent = [Errno::NOENT, Errno::NOTDIR, Errno::NODEV, Errno::OPNOTSUPP, Errno::SRCH];
        if absent.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) {
            return ReadError::Absent;
        }
        ReadError::Failed(format!("cannot read `{}`: {error}", self.path.display()))
    }

    /// The cause when the file was read and does not hold what it should.
    pub(crate) fn malformed(&self, wanted: &str) -> String {
        format!("cannot use `{}`: it does not hold {wanted}", self.path.display())
    }
}
