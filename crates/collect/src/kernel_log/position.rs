//! Up to where a log has been read.

use super::{Record, plain_boot_id};

/// The last record that was taken: kept over restarts, it tells new records from those read before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Position {
    /// The boot, 32 hex digits; empty before the first record.
    pub boot_id: String,
    /// Its sequence number.
    pub sequence: u64,
    /// Its time, microseconds since boot.
    pub monotonic_us: u64,
}

/// What a record is to a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Taken {
    /// The next one, or one that no position can judge since it has no number.
    New,
    /// A new one, and this many between were never read.
    Missed(u64),
    /// The first one of a boot.
    Booted,
    /// A new one whose number is lower than one before: the numbering began again.
    Renumbered,
    /// It was taken before.
    Repeated,
}

impl Position {
    /// Judges a record and moves behind it. `boot_id` is that of the machine, for records that have none.
    pub fn take(&mut self, record: &Record, boot_id: &str) -> Taken {
        let (Some(sequence), Some(monotonic_us)) = (record.sequence, record.monotonic_us) else {
            return Taken::New;
        };
        let boot_id = record.boot_id.clone().unwrap_or_else(|| plain_boot_id(boot_id));
        let taken = if boot_id != self.boot_id {
            Taken::Booted
        } else if sequence <= self.sequence {
            // A record that is read again has its old time; one with a later time is another one.
            if monotonic_us <= self.monotonic_us { Taken::Repeated } else { Taken::Renumbered }
        } else {
            match sequence - self.sequence - 1 {
                0 => Taken::New,
                missed => Taken::Missed(missed),
            }
        };
        if taken != Taken::Repeated {
            *self = Self { boot_id, sequence, monotonic_us };
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(sequence: u64, monotonic_us: u64) -> Record {
        Record { sequence: Some(sequence), monotonic_us: Some(monotonic_us), ..Record::default() }
    }

    #[test]
    fn what_was_read_before_a_restart_is_known() {
        let mut position = Position::default();
        assert_eq!(position.take(&record(7, 100), "A-b"), Taken::Booted);
        assert_eq!(position.take(&record(8, 100), "ab"), Taken::New);
        assert_eq!(position.take(&record(12, 300), "ab"), Taken::Missed(3));
        let mut restarted = position.clone();
        for old in [7, 8, 12] {
            assert_eq!(restarted.take(&record(old, 100), "ab"), Taken::Repeated);
        }
        assert_eq!(restarted.take(&record(13, 301), "ab"), Taken::New);
        assert_eq!(restarted.take(&record(1, 2), "cd"), Taken::Booted, "a new boot starts anew");
        assert_eq!(restarted.take(&Record::default(), "cd"), Taken::New);
    }

    #[test]
    fn numbers_that_go_back_lose_nothing() {
        let mut position = Position::default();
        position.take(&record(100, 1_000), "a");
        assert_eq!(position.take(&record(3, 2_000), "a"), Taken::Renumbered);
        assert_eq!(position.take(&record(4, 2_001), "a"), Taken::New);
        assert_ne!(record(3, 2_000).key(Some("a")), record(3, 1_000).key(Some("a")));
    }
}
