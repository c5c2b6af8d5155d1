//! Peers with a false identity or a foreign address: their packets do not change a set-up.

use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use weft_wire::SetupParameters;

use super::*;

/// Returns the set-up header of a datagram.
fn header_of(bytes: &[u8]) -> SetupHeader {
    let Ok((Packet::Setup(header), _)) = Packet::parse(bytes) else { panic!("not set-up") };
    header
}

fn is_kind(bytes: &[u8], kind: SetupKind) -> bool {
    bytes[0] == kind.packet_type()
}

/// Returns `true` if a datagram is a request with a token.
fn is_proven_request(bytes: &[u8]) -> bool {
    is_kind(bytes, SetupKind::Request) && header_of(bytes).terms.unwrap().token != 0
}

/// Thousands of foreign requests arrive before a host's: its connection is still encrypted.
#[test]
fn strangers_do_not_downgrade_a_connection() {
    for demand in [Mode::Preferred, Mode::Required] {
        let mut pair = Pair::new(both(&mode(demand)));
        let id = pair.connect();
        let mut requests = Vec::new();
        for _ in 0..100 {
            pair.now += Duration::from_micros(50);
            for (from, _, bytes) in pair.hosts[0].send(pair.now) {
                if is_proven_request(&bytes) {
                    requests.push(bytes.clone());
                }
                let _ = pair.hosts[1].receive(pair.now, from, bytes);
            }
            if let [request] = &requests[..] {
                let rest = Packet::parse(request).unwrap().1;
                for other in 0..5_000_u32 {
                    let at = SocketAddr::new((0x0b00_0000 + other).to_be_bytes().into(), 1);
                    let _ =
                        pair.hosts[1].seals.admit(at, &header_of(request), rest, SetupClass::New);
                }
                requests.push(Vec::new());
            }
            for (from, _, bytes) in pair.hosts[1].send(pair.now) {
                let _ = pair.hosts[0].receive(pair.now, from, bytes);
            }
        }
        assert!(pair.hosts[0].seals.is_sealed(id), "{demand}");
        assert!(pair.hosts[1].seals.counters().postponed_exchanges > 2_000);
        // The budget is filled again with time.
        let next = pair.connect();
        pair.run(MS * 50);
        assert!(pair.hosts[0].seals.is_sealed(next), "{demand}");
    }
}

/// Another process at a peer's address that uses the peer's connection id does not replace any keys.
#[test]
fn a_namesake_at_the_same_address_replaces_no_keys() {
    let mut pair = Pair::new(both(&SealConfig::default()));
    let id = pair.connect();
    let mut request = None;
    pair.pass(MS * 5, |datagram| {
        if is_proven_request(&datagram.2) {
            request = Some(datagram.clone());
        }
        vec![datagram]
    });
    let (from, _, bytes) = request.unwrap();
    pair.submit(0, id, 3_000);
    pair.run(MS * 10);
    let mut header = header_of(&bytes);
    let mut namesake = Seals::new(SealConfig::default(), [9; 32]);
    let at = SocketAddr::new(from.ip(), 5_000);
    let mut token = 0;
    for kind in [SetupKind::Challenge, SetupKind::Accept] {
        header.terms =
            Some(SetupParameters { receive_port: 5_000, token, ..header.terms.unwrap() });
        let packet = Packet::Setup(header);
        let wrap = namesake.wrap(&pair.hosts[1].at, Some(ConnectionId(header.local_cid)), &packet);
        let mut datagram = vec![0; packet.len() + wrap.len()];
        packet.emit(wrap.inside_mut(0, &mut datagram));
        namesake.seal(wrap, 0, &mut datagram);
        let _ = pair.hosts[1].receive(pair.now, at, datagram);
        let sent = pair.hosts[1].send(pair.now);
        let (.., answer) = sent.iter().find(|(.., bytes)| is_kind(bytes, kind)).expect("an answer");
        token = header_of(answer).terms.unwrap().token;
    }
    // The network replays the first host's request.
    let _ = pair.hosts[1].receive(pair.now, from, bytes);
    pair.run(MS * 10);
    pair.submit(0, id, 3_000);
    pair.run(MS * 100);
    assert_eq!(pair.hosts[1].delivered(), 2);
}

/// Copies of the accept from the attacker's own address, before the genuine one or instead of it.
#[test]
fn an_accept_from_elsewhere_changes_nothing() {
    for lose in [false, true] {
        let mut pair = Pair::new(both(&SealConfig::default()));
        let id = pair.connect();
        let elsewhere = SocketAddr::new([10, 0, 0, 99].into(), 1);
        let mut lost = false;
        pair.pass(MS * 200, |(from, to, bytes)| {
            if !is_kind(&bytes, SetupKind::Accept) {
                return vec![(from, to, bytes)];
            }
            let copy = (elsewhere, to, bytes.clone());
            if lose && !std::mem::replace(&mut lost, true) {
                return vec![copy];
            }
            vec![copy, (from, to, bytes)]
        });
        assert!(pair.hosts[0].seals.is_sealed(id), "lost: {lose}");
        pair.submit(0, id, 3_000);
        pair.run(MS * 10);
        assert_eq!(pair.hosts[1].delivered(), 1, "lost: {lose}");
    }
}

/// An accept without an exchange, from any address, during the set-up of a connection that must be encrypted.
#[test]
fn an_accept_in_the_clear_from_a_stranger_ends_nothing() {
    let mut pair = Pair::new(both(&mode(Mode::Required)));
    let id = pair.connect();
    let elsewhere = SocketAddr::new([10, 0, 0, 99].into(), 1);
    pair.pass(MS * 50, |(from, to, bytes)| {
        if is_kind(&bytes, SetupKind::Challenge) {
            let mut forged = bytes.clone();
            forged[0] = SetupKind::Accept.packet_type();
            return vec![(elsewhere, to, forged), (from, to, bytes)];
        }
        vec![(from, to, bytes)]
    });
    assert_eq!(pair.hosts[0].closed(), None);
    assert!(pair.hosts[0].seals.is_sealed(id));
}

/// A recorded request with a new token: its sender has no keys, and the owner gets no event.
#[test]
fn a_recorded_request_with_a_new_token_is_announced_to_nobody() {
    let (mut pair, _) = Pair::connected(both(&with_key(1)));
    let recorded = pair.recorded.iter().find(|(.., bytes)| is_kind(bytes, SetupKind::Request));
    let (from, _, mut bytes) = recorded.cloned().unwrap();
    pair.hosts[1] = host(2, 3, with_key(1));
    pair.now += Duration::from_secs(60);
    let now = pair.now;
    let _ = pair.hosts[1].receive(now, from, bytes.clone());
    let sent = pair.hosts[1].send(now);
    let (.., challenge) =
        sent.iter().find(|(.., bytes)| is_kind(bytes, SetupKind::Challenge)).unwrap();
    bytes[36..44].copy_from_slice(&challenge[36..44]);
    let _ = pair.hosts[1].receive(now, from, bytes);
    assert!(pair.hosts[1].send(now).iter().any(|(.., bytes)| is_kind(bytes, SetupKind::Accept)));
    pair.pass(Duration::from_secs(70), |_| vec![]);
    assert_eq!(pair.hosts[1].events, []);
    assert_eq!(pair.hosts[1].seals.connections(), 0);
}

/// An attacker with the public key of an accepted identity, but not the private one, sends requests
/// in its name: the owner gets no event, and the connection shows no identity.
#[test]
fn a_claimed_identity_is_announced_to_nobody() {
    let honest = PrivateKey::new([1; 32]).public();
    let peers = Some([honest].into_iter().collect());
    let config = SealConfig { peers, mode: Mode::Required, ..SealConfig::default() };
    let mut pair = Pair::new([SealConfig::default(), config]);
    pair.connect();
    pair.pass(MS * 5, |(from, to, mut bytes)| {
        if is_kind(&bytes, SetupKind::Request) {
            claim(&mut bytes, honest);
        }
        vec![(from, to, bytes)]
    });
    assert!(pair.recorded.iter().any(|(.., bytes)| is_kind(bytes, SetupKind::Accept)));
    assert_eq!(pair.hosts[1].events, []);
    let channels: Vec<_> = pair.hosts[1].seals.channels.keys().copied().collect();
    assert_eq!((channels.len(), pair.hosts[1].seals.peer(channels[0])), (1, None));
}

/// Writes an exchange into a request that claims another host's identity.
fn claim(request: &mut Vec<u8>, honest: PublicKey) {
    let mut prologue = request[..44].to_vec();
    prologue[3] = 0;
    prologue[36..44].fill(0);
    let protocol = "Noise_IXpsk0_25519_ChaChaPoly_SHA256".parse().unwrap();
    let builder = snow::Builder::with_resolver(protocol, Box::new(ForeignKeyResolver(honest.0)));
    let builder = builder.local_private_key(&[9; 32]).unwrap().psk(0, &[0; 32]).unwrap();
    let mut noise = builder.prologue(&prologue).unwrap().build_initiator().unwrap();
    let mut out = [0; 200];
    let len = noise.write_message(&[0], &mut out).unwrap();
    request.truncate(44);
    request.extend([1, 0]);
    request.extend(u16::try_from(len).unwrap().to_be_bytes());
    request.extend(&out[..len]);
}

/// X25519 that returns a foreign public key.
struct ForeignKey(Box<dyn snow::types::Dh>, [u8; 32]);

impl snow::types::Dh for ForeignKey {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn pub_len(&self) -> usize {
        32
    }
    fn priv_len(&self) -> usize {
        32
    }
    fn set(&mut self, key: &[u8]) {
        self.0.set(key);
    }
    fn generate(&mut self, rng: &mut dyn snow::types::Random) -> Result<(), snow::Error> {
        self.0.generate(rng)
    }
    fn pubkey(&self) -> &[u8] {
        if self.0.privkey() == [9; 32] { &self.1 } else { self.0.pubkey() }
    }
    fn privkey(&self) -> &[u8] {
        self.0.privkey()
    }
    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), snow::Error> {
        self.0.dh(public, out)
    }
}

struct ForeignKeyResolver([u8; 32]);

impl CryptoResolver for ForeignKeyResolver {
    fn resolve_rng(&self) -> Option<Box<dyn snow::types::Random>> {
        Some(Box::new(Entropy::new([3; 32])))
    }
    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn snow::types::Dh>> {
        Some(Box::new(ForeignKey(DefaultResolver.resolve_dh(choice)?, self.0)))
    }
    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn snow::types::Hash>> {
        DefaultResolver.resolve_hash(choice)
    }
    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn snow::types::Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}
