//! Properties of what a BGP neighbour may send, for any bytes. Tests and fuzz targets call this.
#![allow(unreachable_pub, reason = "public to the fuzz targets only")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use weft_evpn::{
    Action, Change, Context, MAX_MESSAGE, NeighbourConfig, NeighbourView, Speaker, SpeakerConfig,
    State, Update,
};
use weft_units::{Duration, Instant, Seed};
use weft_wire::MacAddr;

#[path = "../../../weft-units/tests/inputs/mod.rs"]
pub mod inputs;

use inputs::Script;

/// The largest number of routes that the neighbour may announce.
const MAX_ROUTES: usize = 3;
const ROUTER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 0, 1));

/// Sends the bytes to a speaker as a neighbour's messages. The first byte says whether the session is established before, whether
/// both are in one AS, and whether the messages are framed here: then each is a type, a length of two octets, and a body. The
/// speaker keeps a limited number of routes, its entries follow from these alone, and everything that it sends is whole.
/// Returns `true` if it kept a route.
///
/// # Panics
/// If one of these does not hold.
pub fn evpn_neighbour(bytes: &[u8]) -> bool {
    let mut script = Script::new(bytes);
    let options = script.byte().unwrap_or(0);
    let is_internal = options & 1 != 0;
    let mut speaker = speaker(is_internal);
    if options & 2 != 0 {
        let hello = [open(is_internal), message(4, &[])].concat();
        speaker.handle_bytes(Instant::EPOCH, ROUTER, &hello);
        assert_eq!(view(&speaker).state, State::Established);
    }
    let mut entries = Entries::default();
    let mut kept = false;
    if options & 4 != 0 {
        for piece in script.rest().chunks(1 + usize::from(options)) {
            kept |= receive(&mut speaker, piece, &mut entries);
        }
    } else {
        while let Some(kind) = script.byte() {
            let len = usize::from(script.half()) % MAX_MESSAGE;
            let body = script.take(len);
            if kind == 2 {
                check_update(body, is_internal);
            }
            kept |= receive(&mut speaker, &message(kind, body), &mut entries);
        }
    }
    // What the session brought ends with it.
    speaker.on_disconnected(Instant::EPOCH, ROUTER, "the end");
    entries.apply(&mut speaker);
    assert_eq!(entries, Entries::default());
    kept
}

/// The entries that follow from a speaker's changes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Entries {
    machines: BTreeMap<(u32, MacAddr), IpAddr>,
    addresses: BTreeMap<(u32, IpAddr), MacAddr>,
    vteps: BTreeMap<u32, BTreeMap<IpAddr, bool>>,
}

impl Entries {
    fn apply(&mut self, speaker: &mut Speaker) {
        while let Some(change) = speaker.poll_change() {
            match change {
                Change::Machine { vni, mac, at } => set(&mut self.machines, (vni, mac), at),
                Change::Address { vni, address, mac } => {
                    set(&mut self.addresses, (vni, address), mac);
                }
                Change::Vteps { vni, vteps } => {
                    set(&mut self.vteps, vni, Some(vteps).filter(|vteps| !vteps.is_empty()));
                }
            }
        }
    }
}

/// Sets an entry, or removes it.
fn set<K: Ord, V>(entries: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => entries.insert(key, value),
        None => entries.remove(&key),
    };
}

fn speaker(is_internal: bool) -> Speaker {
    let vtep = IpAddr::from([10, 1, 0, 2]);
    let config = SpeakerConfig { asn: 65_001, router_id: [10, 1, 0, 2].into(), vtep };
    let mut speaker = Speaker::new(config, Seed(1));
    let asn = if is_internal { 65_001 } else { 65_000 };
    let hold_time = Duration::from_secs(90);
    let neighbour = NeighbourConfig { address: ROUTER, asn, hold_time, max_routes: MAX_ROUTES };
    speaker.set_neighbours(Instant::EPOCH, &[neighbour]);
    speaker.set_networks(BTreeMap::from([(100, BTreeSet::new())]));
    let own = (100, MacAddr([2, 0, 0, 0, 7, 1]));
    speaker.set_machines(BTreeMap::from([(own, BTreeSet::from([[192, 168, 7, 1].into()]))]));
    speaker.handle_timeout(Instant::EPOCH);
    assert_eq!(speaker.poll_action(), Some(Action::Connect(ROUTER)));
    speaker.on_connected(Instant::EPOCH, ROUTER);
    speaker
}

fn open(is_internal: bool) -> Vec<u8> {
    let asn = if is_internal { [0xfd, 0xe9] } else { [0xfd, 0xe8] };
    let mut body = vec![4, asn[0], asn[1], 0, 90, 10, 9, 0, 1, 14, 2, 12, 1, 4, 0, 25, 0, 70];
    body.extend([65, 4, 0, 0, asn[0], asn[1]]);
    message(1, &body)
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(19 + body.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&[0xff; 16], &len[..], &[kind], body].concat()
}

fn view(speaker: &Speaker) -> NeighbourView {
    speaker.neighbours().next().expect("there is one")
}

/// Returns `true` if the speaker keeps a route after these bytes.
fn receive(speaker: &mut Speaker, bytes: &[u8], entries: &mut Entries) -> bool {
    speaker.handle_bytes(Instant::EPOCH, ROUTER, bytes);
    check_messages(speaker.output(ROUTER));
    let view = view(speaker);
    assert!(view.routes_received <= MAX_ROUTES);
    while let Some(action) = speaker.poll_action() {
        let Action::Close(_, last) = action else { panic!("{action:?} with a connection") };
        check_messages(&last);
        assert_eq!((view.state, view.routes_received), (State::Idle, 0));
        assert!(view.error.is_some(), "an end has a reason");
    }
    entries.apply(speaker);
    assert!(entries.machines.len() + entries.addresses.len() <= 2 * view.routes_received);
    assert!(entries.vteps.values().map(BTreeMap::len).sum::<usize>() <= view.routes_received);
    assert!(entries.machines.keys().all(|(vni, mac)| *vni == 100 && !mac.is_group()));
    view.routes_received > 0
}

/// Checks that bytes are whole messages.
fn check_messages(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        assert_eq!(bytes[..16], [0xff; 16]);
        let len = usize::from(u16::from_be_bytes([bytes[16], bytes[17]]));
        assert!((19..=MAX_MESSAGE).contains(&len) && (1..=4).contains(&bytes[18]));
        bytes = &bytes[len..];
    }
}

/// Checks that a message with a fault announces nothing.
fn check_update(body: &[u8], is_internal: bool) {
    let context = Context { asn: 65_001, router_id: [10, 1, 0, 2].into(), is_internal };
    if let Ok(update) = Update::parse(body, &context) {
        assert!(update.fault.is_none() || update.announced.is_empty());
    }
}
