use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Equal cards whose UUIDs are `GPU-00000000`, `GPU-00000001` and on.
fn cards(count: u32) -> Vec<Card> {
    (0..count)
        .map(|index| Card {
            index,
            uuid: format!("GPU-{index:08}"),
            model: "NVIDIA H100 80GB HBM3".into(),
            pci_bus_id: format!("0000:{:02x}:00.0", index * 16 + 11),
            compute_capability: Some((9, 0)),
            mig: false,
        })
        .collect()
}

fn with_mig(count: u32, partitioned: u32) -> Vec<Card> {
    let mut cards = cards(count);
    cards[partitioned as usize].mig = true;
    cards
}

#[derive(Clone, Copy, Default)]
struct Given<'a> {
    cuda: Option<&'a str>,
    rank: Option<u32>,
    nvidia: Option<&'a str>,
    order: Option<&'a str>,
}

impl Given<'_> {
    fn environment(self) -> GpuEnvironment {
        GpuEnvironment {
            cuda_visible_devices: self.cuda.map(ToOwned::to_owned),
            cuda_device_order: self.order.map(ToOwned::to_owned),
            nvidia_visible_devices: self.nvidia.map(ToOwned::to_owned),
            local_rank: self.rank.map(|rank| (rank, "LOCAL_RANK")),
        }
    }

    fn of(self, cards: &[Card]) -> Resolved {
        resolve(cards, &self.environment(), &Frameworks::default())
    }
}

/// What of `count` cards a value of `CUDA_VISIBLE_DEVICES` shows.
fn shown(value: &str, count: u32) -> Vec<u32> {
    Given { cuda: Some(value), ..Given::default() }.of(&cards(count)).visible
}

#[test]
fn unset_shows_all_and_blank_none() {
    assert_eq!(Given::default().of(&cards(8)).visible, (0..8).collect::<Vec<_>>());
    for value in ["", "  ", ",", ",0"] {
        assert_eq!(shown(value, 8), [0; 0], "{value:?}");
    }
}

#[test]
fn list_is_cut_at_the_first_entry_that_names_nothing() {
    for value in ["-1", "NoDevFiles", "all", "none", "gpu-0", "MIG-41b3", "-2,1", "8", "99999999999999999999"]
    {
        assert_eq!(shown(value, 8), [0; 0], "{value:?}");
    }
    let check = |value: &str, want: &[u32]| assert_eq!(shown(value, 8), want, "{value:?}");
    check("2,-1,3", &[2]);
    check("0,99,1", &[0]);
    check("1,MIG-x,2", &[1]);
    check("0,99,0", &[0]);
    check("1,2,", &[1, 2]);
    check("3,1", &[3, 1]);
}

#[test]
fn numbers_are_read_as_c_reads_them() {
    let check = |value: &str, want: &[u32]| assert_eq!(shown(value, 8), want, "{value:?}");
    check(" 1 , 2 ", &[1, 2]);
    check("+1", &[1]);
    check("01", &[1]);
    check("-0", &[0]);
    check("1gpu2,2ampere", &[1, 2]);
    check("0x3", &[0]);
    check("1 2", &[1]);
    check("\t1", &[1]);
    assert_eq!(shown("1_0", 16), [1]);
    assert_eq!(shown("10", 16), [10]);
}

#[test]
fn device_named_twice_hides_them_all() {
    for value in
        ["0,0,1", "0,1,0", "1,+1", "GPU-00000003,GPU-00000003", "GPU-00000001,GPU-00000002,GPU-00000001"]
    {
        assert_eq!(shown(value, 8), [0; 0], "{value:?}");
    }
}

#[test]
fn first_entry_settles_whether_names_are_numbers_or_uuids() {
    assert_eq!(shown("0,GPU-00000003", 8), [0]);
    assert_eq!(shown("GPU-00000003,0", 8), [3]);
    assert_eq!(shown(" GPU-00000003 , GPU-00000001", 8), [3, 1]);
}

#[test]
fn beginning_of_a_uuid_must_be_one_device_s_only() {
    assert_eq!(shown("GPU-0000", 8), [0; 0], "ambiguous");
    assert_eq!(shown("GPU-00000003,GPU-0000", 8), [3], "cut there");
    assert_eq!(shown("GPU-0000001", 16), [0; 0], "10 to 15");
    assert_eq!(shown("GPU-", 1), [0], "one card needs no more");
    assert_eq!(shown("GPU-ffff", 8), [0; 0]);
    let mut two = cards(2);
    two[0].uuid = "GPU-1".into();
    two[1].uuid = "GPU-12".into();
    let got = Given { cuda: Some("GPU-1"), ..Given::default() }.of(&two);
    assert_eq!(got.visible, [0], "a whole UUID is no beginning");
}

#[test]
fn rank_takes_its_place_in_the_visible_list() {
    let owned = |cuda, rank, count| Given { cuda, rank, ..Given::default() }.of(&cards(count)).owned;
    assert_eq!(owned(Some("3,1"), Some(0), 8), [3]);
    assert_eq!(owned(Some("3,1"), Some(1), 8), [1]);
    assert_eq!(owned(None, Some(5), 8), [5]);
    assert_eq!(owned(None, Some(6), 4), [0; 0], "not everything");
    assert_eq!(owned(Some(""), Some(0), 8), [0; 0]);
    assert_eq!(owned(Some("6"), Some(3), 8), [6], "each rank was given one card");
    assert_eq!(owned(None, None, 3), [0, 1, 2]);
}

#[test]
fn partitioned_card_keeps_its_place_and_is_nobody_s() {
    let owned = |cuda, rank| Given { cuda, rank, ..Given::default() }.of(&with_mig(8, 2)).owned;
    assert_eq!(owned(None, Some(5)), [5]);
    assert_eq!(owned(None, Some(2)), [0; 0]);
    assert_eq!(owned(Some("2,3"), Some(0)), [0; 0]);
    assert_eq!(owned(Some("2,3"), Some(1)), [3]);
    assert_eq!(owned(Some("2,3"), None), [3]);
    assert_eq!(owned(Some("2"), None), [0; 0]);
    let got = Given { cuda: Some("2,3"), rank: Some(0), ..Given::default() }.of(&with_mig(8, 2));
    assert_eq!(got.visible, [2, 3]);
    assert_eq!(
        got.source,
        "CUDA_VISIBLE_DEVICES=\"2,3\" shows 2 GPUs; LOCAL_RANK=0: GPU 2 is partitioned with MIG"
    );
}

#[test]
fn unreadable_card_does_not_renumber_the_others() {
    let mut cards = cards(8);
    cards.remove(2);
    let got = |cuda, rank| Given { cuda, rank, ..Given::default() }.of(&cards);
    assert_eq!(got(None, Some(5)).owned, [5]);
    assert_eq!(got(None, Some(2)).owned, [0; 0]);
    assert_eq!(got(Some("3,2"), None).visible, [3, 2]);
    assert_eq!(got(Some("3,2"), None).owned, [3]);
}

#[test]
fn initialised_jax_is_believed_before_a_rank_and_torch_after_it() {
    let both = Frameworks { jax: Some(vec![3, 2, 99]), torch: Some(6) };
    let torch = Frameworks { jax: None, torch: Some(6) };
    let cpu_only = Frameworks { jax: Some(Vec::new()), torch: Some(6) };
    let check = |rank, frameworks: &Frameworks, want: &[u32]| {
        let env = Given { rank, ..Given::default() }.environment();
        assert_eq!(resolve(&cards(8), &env, frameworks).owned, want);
    };
    check(Some(0), &both, &[2, 3]);
    check(None, &both, &[2, 3]);
    check(Some(0), &torch, &[0]);
    check(None, &torch, &[6]);
    check(Some(1), &cpu_only, &[1]);
    check(None, &cpu_only, &[6]);
    let one = Given { cuda: Some("4"), ..Given::default() }.environment();
    assert_eq!(resolve(&cards(8), &one, &both).owned, [4], "one visible card needs no answer");
    let two = Given { cuda: Some("4,5"), ..Given::default() }.environment();
    let second = Frameworks { jax: Some(vec![1]), torch: None };
    assert_eq!(resolve(&cards(8), &two, &second).owned, [5], "ordinals are CUDA's");
}

#[test]
fn container_whose_driver_shows_too_much_reports_what_it_was_given() {
    let owned = |nvidia, rank| Given { nvidia: Some(nvidia), rank, ..Given::default() }.of(&cards(8)).owned;
    let all: Vec<u32> = (0..8).collect();
    for unlimited in ["", "all", "void", "0,1,2,3,4,5,6,7", "GPU-ffff", "9", "0,MIG-1", "3,nonsense"] {
        assert_eq!(owned(unlimited, None), all, "{unlimited:?}");
    }
    assert_eq!(owned("none", None), [0; 0]);
    assert_eq!(owned("GPU-00000005,GPU-00000003", None), [3, 5]);
    assert_eq!(owned("6,2", None), [2, 6]);
    assert_eq!(owned("6,2", Some(1)), [6]);
    assert_eq!(owned("6", Some(0)), [6]);
    let renumbered = Given { nvidia: Some("6,7"), ..Given::default() }.of(&cards(2)).owned;
    assert_eq!(renumbered, [0, 1], "the driver shows what was given, under new numbers");
    let narrower = Given { nvidia: Some("6,2"), cuda: Some("1"), ..Given::default() }.of(&cards(8));
    assert_eq!(narrower.owned, [1], "CUDA's own variable is what CUDA follows");
}

#[test]
fn order_is_that_of_the_bus_for_equal_cards_and_a_guess_for_others() {
    let mut equal = cards(3);
    equal[0].pci_bus_id = "0000:f1:00.0".into();
    let got = Given { cuda: Some("0"), ..Given::default() }.of(&equal);
    assert_eq!(got.visible, [1]);
    assert_eq!(got.order, "FASTEST_FIRST (the cards are equal: by PCI bus id)");
    let mut mixed = cards(3);
    mixed[2] = Card { model: "NVIDIA B200".into(), compute_capability: Some((10, 0)), ..mixed[2].clone() };
    let check = |order, cards: &[Card], want: &[u32], said: &str| {
        let got = Given { order, ..Given::default() }.of(cards);
        assert_eq!((&*got.visible, &*got.order), (want, said));
    };
    let guess = "FASTEST_FIRST (the cards differ: a guess, by compute capability, then by PCI bus id)";
    check(None, &mixed, &[2, 0, 1], guess);
    check(Some("nonsense"), &mixed, &[2, 0, 1], guess);
    check(Some("PCI_BUS_ID"), &mixed, &[0, 1, 2], "PCI_BUS_ID");
    mixed[0].compute_capability = None;
    let blind = "FASTEST_FIRST (the cards differ and don't say how: a guess, by PCI bus id)";
    check(Some("FASTEST_FIRST"), &mixed, &[0, 1, 2], blind);
    mixed[1].pci_bus_id.clear();
    let index = "PCI_BUS_ID (by the driver's index, since bus ids are unknown)";
    check(Some("PCI_BUS_ID"), &mixed, &[0, 1, 2], index);
    let mut wide = cards(2);
    wide[0].pci_bus_id = "10000:01:00.0".into();
    check(Some("PCI_BUS_ID"), &wide, &[1, 0], "PCI_BUS_ID");
}

#[test]
fn long_value_is_cut_in_words() {
    let value = "GPU-00000001,".repeat(40);
    let got = Given { cuda: Some(&value), ..Given::default() }.of(&cards(8));
    assert!(got.source.len() < 200, "{}", got.source);
}

#[test]
fn environment_is_read_from_its_variables() {
    let got = GpuEnvironment::from_variables(&|name| match name {
        "CUDA_VISIBLE_DEVICES" | "SLURM_LOCALID" => Some("2".into()),
        _ => None,
    });
    assert_eq!(
        got,
        GpuEnvironment {
            cuda_visible_devices: Some("2".into()),
            local_rank: Some((2, "SLURM_LOCALID")),
            ..GpuEnvironment::default()
        }
    );
}

/// Cards in any state, with gaps in their numbers.
fn any_cards() -> impl Strategy<Value = Vec<Card>> {
    proptest::collection::vec((any::<bool>(), any::<bool>(), 0..3_u32), 0..10).prop_map(|kinds| {
        let mut cards = cards(kinds.len() as u32);
        for (card, (mig, _, kind)) in cards.iter_mut().zip(&kinds) {
            card.mig = *mig;
            card.model = format!("model {kind}");
            card.compute_capability = Some((7 + kind, 0));
        }
        let mut is_there = kinds.iter().map(|(_, is_there, _)| *is_there);
        cards.retain(|_| is_there.next().unwrap_or(true));
        cards
    })
}

fn any_value() -> impl Strategy<Value = Option<String>> {
    let entry = prop_oneof!["[0-9]{1,2}", "GPU-0{0,7}[0-9]?", "[ +-]?[0-9a-zG_-]{0,4}", "MIG-[0-9]"];
    proptest::option::of(proptest::collection::vec(entry, 0..6).prop_map(|entries| entries.join(",")))
}

proptest! {
    #[test]
    fn whatever_is_said_owned_is_visible_whole_and_named_once(
        cards in any_cards(),
        cuda in any_value(),
        rank in proptest::option::of(0..12_u32),
        jax in proptest::option::of(proptest::collection::vec(0..12_u32, 0..4)),
        torch in proptest::option::of(0..12_u32),
    ) {
        let env = Given { cuda: cuda.as_deref(), rank, ..Given::default() }.environment();
        let got = resolve(&cards, &env, &Frameworks { jax, torch });
        let visible: BTreeSet<u32> = got.visible.iter().copied().collect();
        let owned: BTreeSet<u32> = got.owned.iter().copied().collect();
        prop_assert_eq!((visible.len(), owned.len()), (got.visible.len(), got.owned.len()));
        prop_assert!(owned.is_subset(&visible));
        prop_assert!(owned.iter().all(|index| cards.iter().any(|card| card.index == *index && !card.mig)));
    }

    #[test]
    fn ranks_share_out_every_whole_card_once(cards in any_cards(), cuda in any_value()) {
        let of = |rank| Given { cuda: cuda.as_deref(), rank, ..Given::default() }.of(&cards);
        let visible = of(None).visible;
        prop_assume!(visible.len() > 1);
        let mut shared: Vec<u32> = (0..visible.len() as u32 + 2).flat_map(|rank| of(Some(rank)).owned).collect();
        let mut all = of(None).owned;
        shared.sort_unstable();
        all.sort_unstable();
        prop_assert_eq!(shared, all);
    }

    #[test]
    fn list_of_numbers_shows_those_in_that_order(mut wanted in proptest::sample::subsequence((0..8_u32).collect::<Vec<_>>(), 1..8), turn in 0..8_usize) {
        let turn = turn % wanted.len();
        wanted.rotate_left(turn);
        let texts: Vec<String> = wanted.iter().map(ToString::to_string).collect();
        prop_assert_eq!(shown(&texts.join(","), 8), wanted.clone());
        let uuids: Vec<String> = wanted.iter().map(|index| format!("GPU-{index:08}")).collect();
        prop_assert_eq!(shown(&uuids.join(" ,"), 8), wanted);
    }

    #[test]
    fn no_text_is_too_odd(text in "\\PC{0,40}", other in "\\PC{0,40}") {
        let env = Given { cuda: Some(&text), order: Some(&other), ..Given::default() };
        let visible = env.of(&cards(8)).visible;
        prop_assert!(visible.len() <= 8);
        let env = Given { nvidia: Some(&text), ..Given::default() };
        prop_assert!(env.of(&cards(8)).visible.len() <= 8);
    }
}
