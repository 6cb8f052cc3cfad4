//! The log through restarts, rotations and boots: nothing is lost and nothing comes twice.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use agent::{LogInput, Source};
use model::Event;

use crate::log::{LINES, Node, body, codes, wanted_of_cards, wanted_of_the_rest, xid};

#[test]
fn a_restart_goes_on_where_it_was_kept() {
    let mut node = Node::new();
    node.write("kern.log", xid(31, "first"));
    let mut log = node.log();
    assert_eq!(codes(&node.events(&mut log)), [31]);
    node.write("kern.log", xid(13, "second"));
    let lost = node.look(&mut log).events;
    assert_eq!(codes(&lost), [13]);
    // Killed before it could be kept: it comes again, under the same key.
    drop(log);
    let mut log = node.log();
    let again = node.events(&mut log);
    assert_eq!(codes(&again), [13]);
    assert_eq!(again[0].key, lost[0].key);
    drop(log);
    node.write("kern.log", xid(48, "third"));
    assert_eq!(codes(&node.events(&mut node.log())), [48]);
}

#[test]
fn a_line_counts_when_it_has_its_end() {
    let mut node = Node::new();
    let line = xid(48, "An uncorrectable double bit error");
    let (start, rest) = line.split_at(60);
    node.write("kern.log", start);
    let mut log = node.log();
    assert_eq!(node.events(&mut log), []);
    // Also over a restart amid the line.
    let mut log = {
        drop(log);
        node.log()
    };
    assert_eq!(node.events(&mut log), []);
    node.write("kern.log", rest);
    let events = node.events(&mut log);
    assert_eq!(events[0].text, line.trim_end());
}

#[test]
fn a_file_that_is_renamed_is_read_to_its_end() {
    let mut node = Node::new();
    let mut log = node.log();
    node.write("kern.log", xid(1, "a"));
    let mut got = codes(&node.events(&mut log));
    node.write("kern.log", xid(2, "b"));
    fs::rename(node.path("kern.log"), node.path("kern.log.1")).unwrap();
    // Its writer has it still, and writes to both for a while.
    node.write("kern.log.1", xid(3, "c"));
    node.write("kern.log", xid(4, "d"));
    got.extend(codes(&node.events(&mut log)));
    node.write("kern.log.1", xid(5, "e"));
    got.extend(codes(&node.events(&mut log)));
    node.write("kern.log", xid(6, "f"));
    got.extend(codes(&node.events(&mut log)));
    assert_eq!(got, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_file_that_is_copied_and_truncated_is_read_to_its_end() {
    let mut node = Node::new();
    let mut log = node.log();
    node.write("kern.log", xid(1, "a"));
    let mut got = codes(&node.events(&mut log));
    node.write("kern.log", xid(2, "b"));
    fs::copy(node.path("kern.log"), node.path("kern.log.1")).unwrap();
    fs::write(node.path("kern.log"), "").unwrap();
    got.extend(codes(&node.events(&mut log)));
    node.write("kern.log", xid(3, "c"));
    got.extend(codes(&node.events(&mut log)));
    // Truncated and longer than before at the next look.
    let rest: String = (4..9).map(|code| xid(code, "again")).collect();
    fs::write(node.path("kern.log"), rest).unwrap();
    got.extend(codes(&node.events(&mut log)));
    assert_eq!(got, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn rotations_while_the_agent_is_away_lose_nothing() {
    for is_copied in [false, true] {
        let mut node = Node::new();
        node.write("kern.log", xid(1, "a"));
        assert_eq!(codes(&node.events(&mut node.log())), [1]);
        node.write("kern.log", xid(2, "b"));
        if is_copied {
            fs::copy(node.path("kern.log"), node.path("kern.log.1")).unwrap();
            fs::write(node.path("kern.log"), xid(3, "c")).unwrap();
        } else {
            fs::rename(node.path("kern.log"), node.path("kern.log.1")).unwrap();
            node.write("kern.log", xid(3, "c"));
        }
        let mut log = node.log();
        assert_eq!(codes(&node.events(&mut log)), [2, 3], "copied: {is_copied}");
        assert_eq!(node.events(&mut log), []);
        assert_eq!(node.events(&mut node.log()), [], "nothing twice");
    }
}

#[test]
fn of_a_file_that_is_new_to_the_agent_the_last_part_is_read() {
    let mut node = Node::new();
    node.write("kern.log", xid(1, "long ago"));
    node.write("kern.log", "nothing of interest, over and over\n".repeat(200_000));
    node.write("kern.log", xid(2, "lately"));
    let mut log = node.log();
    assert_eq!(codes(&node.events(&mut log)), [2]);
    // What is rotated in later is read whole.
    fs::rename(node.path("kern.log"), node.path("kern.log.1")).unwrap();
    node.write("kern.log", xid(3, "first") + &"nothing of interest, over and over\n".repeat(200_000));
    assert_eq!(codes(&node.events(&mut log)), [3]);
}

#[test]
fn the_same_line_at_another_place_is_another_event() {
    let mut node = Node::new();
    let mut log = node.log();
    let mut keys = Vec::new();
    for _ in 0..3 {
        // The same text at the same place of three files.
        fs::write(node.path("new"), xid(48, "A")).unwrap();
        fs::rename(node.path("new"), node.path("kern.log")).unwrap();
        keys.extend(node.events(&mut log).into_iter().map(|event| event.key));
    }
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 3);
}

#[test]
fn a_boot_is_told_once_with_the_one_before() {
    let mut node = Node::new();
    node.write("kern.log", "");
    let boots = |events: Vec<Event>| -> Vec<serde_json::Value> {
        events.iter().map(body).filter(|body| body["what"] == "boot").collect()
    };
    let mut log = node.log();
    let first = node.look(&mut log).events;
    log.kept();
    assert_eq!(first[0].kind, "node");
    let first = boots(first);
    assert_eq!((first.len(), &first[0]["previous_boot_id"]), (1, &serde_json::Value::Null));
    assert_eq!(boots(node.look(&mut node.log()).events).len(), 0, "the same boot");

    node.boots("99999999-2222-3333-4444-555555555555");
    fs::write(node.path("proc/uptime"), "5.00 1.00\n").unwrap();
    let mut log = node.log();
    let events = node.look(&mut log).events;
    let told = boots(events.clone());
    assert_eq!(told[0]["previous_boot_id"], "11111111222233334444555555555555");
    assert_eq!(told[0]["boot_id"], "99999999222233334444555555555555");
    // It happened when the machine came up, not when that was noticed.
    assert_eq!(events[0].time_ns, told[0]["booted_ns"].as_i64().unwrap());
    // Killed before it was kept: the same key.
    let again = node.look(&mut node.log()).events;
    assert_eq!(again[0].key, events[0].key);
}

/// A program that stands for `journalctl`: an entry for each line of a file behind the cursor.
fn journalctl(node: &Node) -> LogInput {
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> {folder}/asked\nat=0\nfor word in \"$@\"; do case $word in \
         --after-cursor=*) at=${{word#--after-cursor=}};; esac; done\n\
         number=0\nwhile read -r line; do number=$((number + 1)); [ $number -gt $at ] && printf \
         '__CURSOR=%s\\n_TRANSPORT=kernel\\n_BOOT_ID=11111111222233334444555555555555\\n_SOURCE_MONOTONIC_TIMESTAMP=%s\\nMESSAGE=%s\\n\\n' \
         $number $((8000000000 + number)) \"$line\"; done < {folder}/journal\n[ -e {folder}/ends ] && echo gone >&2 && exit 3\nexec sleep 60\n",
        folder = node.folder.path().display()
    );
    let program = node.path("journalctl");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    LogInput::Journal(program.into_os_string())
}

/// Looks until there are so many events.
fn await_events(node: &mut Node, log: &mut agent::KernelLog, count: usize) -> Vec<Event> {
    let end = Instant::now() + Duration::from_mins(1);
    let mut events = Vec::new();
    while events.len() < count && Instant::now() < end {
        events.extend(node.events(log));
        std::thread::yield_now();
    }
    events
}

#[test]
fn the_journal_goes_on_behind_its_cursor() {
    let mut node = Node::new();
    node.write("journal", xid(31, "first") + &xid(13, "second"));
    let input = journalctl(&node);
    let mut log = node.log_from(input.clone());
    let events = await_events(&mut node, &mut log, 2);
    assert_eq!(codes(&events), [31, 13]);
    assert_eq!(events[0].label("source"), Some("kernel"));
    assert!(events[0].key.starts_with("11111111222233334444555555555555:8000000001:"), "{}", events[0].key);
    drop(log);
    node.write("journal", xid(48, "third"));
    let mut log = node.log_from(input);
    assert_eq!(codes(&await_events(&mut node, &mut log, 1)), [48]);
    let asked = fs::read_to_string(node.path("asked")).unwrap();
    let asked: Vec<&str> = asked.lines().collect();
    assert!(asked[0].ends_with("--boot") && asked[1].ends_with("--after-cursor=2"), "{asked:?}");
}

#[test]
fn a_journal_that_ends_is_said_with_its_words_and_asked_again() {
    let mut node = Node::new();
    node.write("journal", xid(31, "first"));
    node.write("ends", "");
    let input = journalctl(&node);
    let mut log = node.log_from(input);
    let events = await_events(&mut node, &mut log, 2);
    assert_eq!(codes(&events), [31]);
    assert!(events[1].text.contains("ended") && events[1].text.contains("gone"), "{}", events[1].text);
    fs::remove_file(node.path("ends")).unwrap();
    node.write("journal", xid(48, "second"));
    assert_eq!(codes(&await_events(&mut node, &mut log, 1)), [48]);
}

/// Writes the twenty lines to this machine's own log, where it lets us, and reads what comes of them.
#[test]
fn lines_that_a_process_wrote_to_this_machines_log_are_marked() {
    let own = format!("t{}", std::process::id());
    let is_open = |write: bool| fs::OpenOptions::new().read(!write).write(write).open("/dev/kmsg").is_ok();
    if !is_open(true) || !is_open(false) {
        return;
    }
    let mut node = Node::new();
    let mut log = node.log_from(LogInput::Kernel);
    // What earlier runs of this test left in the log is counted apart, a minute before.
    for _ in 0..8 {
        node.events(&mut log);
    }
    let starts = ["NVRM: ", "nvidia-nvswitch", "amdgpu "];
    for line in LINES.lines() {
        let at = starts.iter().find_map(|start| line.find(start)).unwrap();
        // The card's line ends with an id, in which nothing else may stand.
        let mark = if line.contains("GPU at") { own.clone() } else { format!(" {own}") };
        // The kernel bounds how much one opening of the device may write.
        fs::write("/dev/kmsg", format!("<4>{}{mark}\n", &line[at..])).unwrap();
    }
    let is_own = |event: &Event| event.text.ends_with(&own);
    let end = Instant::now() + Duration::from_mins(1);
    let mut events = Vec::new();
    while events.len() < 20 && Instant::now() < end {
        events.extend(node.events(&mut log).into_iter().filter(is_own));
    }
    let kinds: Vec<&str> = events.iter().map(|event| &*event.kind).collect();
    let wanted = wanted_of_cards().into_iter().chain(wanted_of_the_rest());
    let places: Vec<Option<&str>> = events.iter().map(|event| event.label("pci_bus_id")).collect();
    let (want_kinds, want_places): (Vec<&str>, Vec<Option<&str>>) =
        wanted.map(|(kind, _, place, _)| (kind, Some(place))).unzip();
    assert_eq!((kinds, places), (want_kinds, want_places));
    for event in &events {
        assert_eq!((event.label("source"), event.severity.name()), (Some("userspace"), "info"));
        assert!(body(event)["facility"] != 0 && body(event)["sequence"].is_u64());
        assert_eq!(event.label("uuid"), None, "a card is not what a process calls it");
    }
    // A restart does not read them again.
    let mut log = node.log_from(LogInput::Kernel);
    assert!(!node.events(&mut log).iter().any(is_own));
}
