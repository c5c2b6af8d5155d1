//! Tests of encrypted packets in tshark: with their keys it shows the same fields as of plaintext packets, without keys
//! only the unencrypted fields.

use std::fs;
use std::path::Path;

use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use weft_wire::{Cipher, SealedContent, SealedHeader, U4, U24, VxlanHeader, VxlanNext};

mod packets;
mod session;
mod shark;

use packets::payloads_of_the_transport;
use shark::{File, Sent, assert_golden, capture, capture_of, golden_file, tshark};

const PORTS: [u16; 2] = [4791, 4792];
const SPI: u32 = 0xabcd_0001;
const LINES: [&str; 6] = ["-T", "fields", "-e", "_ws.col.Protocol", "-e", "_ws.col.Info"];

/// A key with fixed bytes.
struct Key {
    cipher: Cipher,
    number: u8,
}

impl Key {
    fn bytes(&self) -> Vec<u8> {
        let len = if self.cipher == Cipher::Aes128Gcm { 16 } else { 32 };
        (0..len).map(|byte: u8| (byte * 7).wrapping_add(self.number)).collect()
    }

    fn line(&self) -> String {
        let digits: String = self.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{SPI:08x} {} {} {digits}\n", self.cipher.number(), self.number)
    }

    /// Encrypts `text` as packet number `iv` and returns the packet, which begins with the unencrypted bytes `clear`.
    fn seal(&self, clear: &[u8], content: SealedContent, iv: u64, text: &[u8]) -> Vec<u8> {
        let iv_bytes = iv.to_be_bytes();
        let header = SealedHeader {
            version: U4::truncate(1),
            cipher: self.cipher,
            key: self.number,
            content,
            iv: u32::from_be_bytes(*iv_bytes.last_chunk().unwrap()),
            spi: SPI,
        };
        let mut packet = [clear, &[0; SealedHeader::LEN]].concat();
        header.emit(&mut packet[clear.len()..]);
        let nonce = [&SPI.to_be_bytes()[..], &iv_bytes].concat();
        let nonce = Nonce::assume_unique_for_key(nonce.try_into().unwrap());
        let algorithm = if self.cipher == Cipher::Aes128Gcm { &AES_128_GCM } else { &AES_256_GCM };
        let key = LessSafeKey::new(UnboundKey::new(algorithm, &self.bytes()).unwrap());
        let mut text = text.to_vec();
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(&packet), &mut text).unwrap();
        [&packet, &text, tag.as_ref()].concat()
    }
}

fn with_keys(name: &str, keys: &str) -> (File, String) {
    let file = File::new(name, keys.as_bytes());
    let option = format!("weft.keys:{}", file.0.display());
    (file, option)
}

fn compare(name: &str, bytes: &[u8]) {
    let file = golden_file(name);
    if std::env::var_os("BLESS").is_some() {
        fs::write(&file, bytes).unwrap();
    }
    assert!(fs::read(&file).unwrap() == bytes, "{}; BLESS=1 accepts it", file.display());
}

#[test]
fn the_recorded_session_is_made_again() {
    let session = session::session();
    compare("sealed.keys", session.keys.as_bytes());
    compare("sealed.pcapng", &capture_of(session.sent));
}

#[test]
fn a_session_is_decrypted_with_its_keys_and_shows_only_clear_fields_without() {
    let file = golden_file("sealed.pcapng");
    let Some(lines) = shark::read(&file, &LINES) else { return };
    assert_golden("sealed-encrypted.txt", &lines);
    let option = format!("weft.keys:{}", golden_file("sealed.keys").display());
    let lines = shark::read(&file, &[&["-o", &option], &LINES[..]].concat()).unwrap();
    assert_golden("sealed-lines.txt", &lines);
    let fields = [
        "weft.exchange.protocol",
        "weft.exchange.length",
        "weft.sealed.cipher",
        "weft.sealed.key",
        "weft.sealed.number",
        "weft.sealed.authentic",
        "weft.psn",
        "weft.message.length",
        "weft.rdma.virtual_address",
        "_ws.expert.message",
    ];
    let mut arguments = vec!["-o", &option, "-T", "fields", "-E", "header=y"];
    fields.iter().for_each(|field| arguments.extend(["-e", field]));
    assert_golden("sealed-fields.txt", &shark::read(&file, &arguments).unwrap());
}

/// With two passes (`-2`) tshark dissects each packet twice, the second time out of order.
#[test]
fn a_second_pass_shows_the_same() {
    let option = format!("weft.keys:{}", golden_file("sealed.keys").display());
    let arguments = [&["-2", "-o", &option], &LINES[..]].concat();
    let Some(lines) = shark::read(&golden_file("sealed.pcapng"), &arguments) else { return };
    assert_golden("sealed-lines.txt", &lines);
}

/// Returns for each packet the names and values of all fields of Weft's headers.
fn fields_of_the_transport(file: &File, arguments: &[&str]) -> Option<Vec<String>> {
    let arguments = [&["-T", "pdml"], arguments].concat();
    let text = tshark(file, &arguments)?;
    Some(text.split("<packet>").skip(1).map(fields_inside).collect())
}

/// Returns the fields of one packet, without their offsets and without those that the sealed header adds.
fn fields_inside(packet: &str) -> String {
    let field = |line: &str, name: &str| {
        let value = line.split(&format!(" {name}=\"")).nth(1)?.split('"').next()?;
        Some(format!("{name}={value} "))
    };
    let ours = packet
        .lines()
        .filter(|line| line.contains(" name=\"weft.") || line.contains("name=\"_ws.expert"));
    ours.filter(|line| !line.contains("weft.sealed") && !line.contains("weft.encrypted"))
        .filter(|line| {
            !(line.contains("name=\"weft.cid\"") && line.contains(&format!("{SPI:08x}")))
        })
        .map(|line| {
            let parts = ["name", "showname", "show"].iter().filter_map(|name| field(line, name));
            parts.collect::<String>() + "\n"
        })
        .collect()
}

#[test]
fn decrypted_packets_read_exactly_as_in_the_clear() {
    let clear: Vec<_> =
        payloads_of_the_transport().into_iter().filter(|payload| payload[0] != 9).collect();
    let clear_file = File::new("inside-clear", &capture(&clear, PORTS));
    let Some(expected) = fields_of_the_transport(&clear_file, &[]) else { return };
    assert!(expected.iter().map(|fields| fields.lines().count()).sum::<usize>() > 300);
    let lines = tshark(&clear_file, &LINES).unwrap();
    let expected_lines = lines.replace("Weft\t", "Weft\tsealed ");
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm] {
        let key = Key { cipher, number: 200 };
        let sealed =
            (0..).zip(&clear).map(|(iv, text)| key.seal(&[], SealedContent::Packet, iv, text));
        let name = format!("inside-{}", cipher.number());
        let file = File::new(&name, &capture(&sealed.collect::<Vec<_>>(), PORTS));
        let (_keys, option) = with_keys(&format!("keys-{}", cipher.number()), &key.line());
        let got = fields_of_the_transport(&file, &["-o", &option]).unwrap();
        for ((got, expected), clear) in got.iter().zip(&expected).zip(&clear) {
            assert_eq!(got, expected, "{cipher:?}, {clear:?}");
        }
        assert_eq!(got.len(), expected.len());
        let lines = tshark(&file, &[&["-o", &option], &LINES[..]].concat()).unwrap();
        assert_eq!(lines, expected_lines, "{cipher:?}");
    }
}

fn data_packet() -> Vec<u8> {
    payloads_of_the_transport().swap_remove(1)
}

#[test]
fn numbers_are_completed_whatever_comes_first_and_whatever_is_forged() {
    let key = Key { cipher: Cipher::Aes128Gcm, number: 0 };
    let wraps = 5_u64 << 32;
    let ivs = [
        wraps - 3,
        wraps - 1,
        wraps + 1,
        wraps - 2,
        wraps,
        wraps + (1 << 31),
        wraps + (1 << 32) - 9,
    ];
    let mut packets: Vec<_> =
        ivs.map(|iv| key.seal(&[], SealedContent::Packet, iv, &data_packet())).into();
    // A forged packet whose number is far ahead.
    let mut forged = key.seal(&[], SealedContent::Packet, wraps + 3_000_000_000, &data_packet());
    *forged.last_mut().unwrap() ^= 1;
    packets.insert(2, forged);
    let file = File::new("numbers", &capture(&packets, PORTS));
    let (_keys, option) = with_keys("keys-numbers", &key.line());
    let fields =
        ["-o", &option, "-T", "fields", "-e", "weft.sealed.number", "-e", "weft.sealed.authentic"];
    let Some(lines) = tshark(&file, &fields) else { return };
    let mut expected: Vec<_> = ivs.map(|iv| format!("{iv}\tTrue")).into();
    expected.insert(2, "\tFalse".to_owned());
    let lines: Vec<_> =
        lines.lines().map(|line| line.replace("\t1", "\tTrue").replace("\t0", "\tFalse")).collect();
    assert_eq!(lines, expected);
}

/// The tag also authenticates VXLAN's header.
#[test]
fn the_overlay_is_decrypted_with_its_header_authenticated() {
    let key = Key { cipher: Cipher::Aes256Gcm, number: 1 };
    let mut vxlan = [0; VxlanHeader::LEN];
    VxlanHeader { vni: U24::truncate(123_456), next: VxlanNext::Weft }.emit(&mut vxlan);
    let arp = [
        &[0xff; 6][..],
        &[2, 0, 0, 0, 0, 0xa, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
        &[2, 0, 0, 0, 0, 0xa, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2],
    ];
    let mut packets = vec![
        key.seal(&vxlan, SealedContent::Packet, 0, &data_packet()),
        key.seal(&vxlan, SealedContent::Frame, 1, &arp.concat()),
        key.seal(&vxlan, SealedContent::Frame, 2, &arp.concat()),
    ];
    packets[2][5] ^= 1;
    let file = File::new("sealed-overlay", &capture(&packets, [VxlanHeader::PORT; 2]));
    let (_keys, option) = with_keys("keys-overlay", &key.line());
    let Some(lines) = tshark(&file, &[&["-o", &option], &LINES[..]].concat()) else { return };
    assert_golden("sealed-overlay.txt", &lines);
}

#[test]
fn truncated_packets_and_invalid_key_files_are_no_error_of_the_dissector() {
    let key = Key { cipher: Cipher::Aes128Gcm, number: 0 };
    let whole = key.seal(&[], SealedContent::Packet, 0, &data_packet());
    let short = (0..whole.len()).map(|len| whole[..len].to_vec()).collect::<Vec<_>>();
    let at: [std::net::SocketAddr; 2] =
        ["10.0.0.1:49152", "10.0.0.2:4791"].map(|at| at.parse().unwrap());
    let partly = short.iter().map(|bytes| Sent {
        from: at[0],
        to: at[1],
        bytes: bytes.clone(),
        length: whole.len(),
    });
    let none = format!("{SPI:08x} 0 0 12\n\0\0\nzz\n{SPI:08x} 7 0 {}\n", "aa".repeat(16));
    for keys in [key.line(), none] {
        let (_keys, option) = with_keys("keys-cut", &keys);
        for bytes in [capture(&short, PORTS), capture_of(partly.clone())] {
            let Some(lines) = tshark(&File::new("sealed-cut", &bytes), &["-V", "-o", &option])
            else {
                return;
            };
            assert!(!lines.contains("Lua Error"), "{lines}");
        }
    }
    let (_keys, option) = with_keys("keys-partly", &key.line());
    let lines = tshark(&File::new("sealed-partly", &capture_of(partly)), &["-o", &option]).unwrap();
    assert!(lines.contains("sealed data psn 4294967290"), "{lines}");
}

/// The test vectors of the mode's authors (McGrew and Viega, "The Galois/Counter Mode of Operation", appendix B), which
/// NIST adopted together with the mode.
#[test]
fn the_dissector_computes_aes_gcm() {
    let plain = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255";
    let (short, clear) = (&plain[..120], "feedfacedeadbeeffeedfacedeadbeefabaddad2");
    let (zeros, nonce) = ("00".repeat(32), "cafebabefacedbaddecaf888");
    let key = "feffe9928665731c6d6a8f9467308308";
    let key_256 = key.repeat(2);
    // Cases 1 to 4 and 13 to 16: key, nonce, additional data, plaintext, ciphertext, tag.
    let cases = [
        (&zeros[..32], &zeros[..24], "", "", "", "58e2fccefa7e3061367f1d57a4e7455a"),
        (
            &zeros[..32],
            &zeros[..24],
            "",
            &zeros[..32],
            "0388dace60b6a392f328c2b971b2fe78",
            "ab6e47d42cec13bdf53a67b21257bddf",
        ),
        (
            key,
            nonce,
            "",
            plain,
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091473f5985",
            "4d5c2af327cd64a62cf35abd2ba6fab4",
        ),
        (
            key,
            nonce,
            clear,
            short,
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091",
            "5bc94fbc3221a5db94fae95ae7121a47",
        ),
        (&zeros, &zeros[..24], "", "", "", "530f8afbc74536b9a963b4f1c4cb738b"),
        (
            &zeros,
            &zeros[..24],
            "",
            &zeros[..32],
            "cea7403d4d606b6e074ec5d3baf39d18",
            "d0d1c8a799996bf0265b98b5d48ab919",
        ),
        (
            &key_256,
            nonce,
            "",
            plain,
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad",
            "b094dac5d93471bdec1a502270e3cc6c",
        ),
        (
            &key_256,
            nonce,
            clear,
            short,
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662",
            "76fc6ece0f4e1768cddf8853bb2d551b",
        ),
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../xtask/src/docs/dissector/gcm.lua");
    let mut program = fs::read_to_string(folder).unwrap();
    program += "local function bytes(digits) return (digits:gsub('%x%x', function(b) return string.char(tonumber(b, 16)) end)) end\n";
    for (key, nonce, clear, plain, text, tag) in cases {
        program += &format!(
            "do local key, nonce, text = gcm.key(bytes('{key}')), bytes('{nonce}'), bytes('{text}')\n\
             local tag = gcm.tag(key, nonce, gcm.hash(key, bytes('{clear}'), text))\n\
             print('case', gcm.decrypt(key, nonce, text) == bytes('{plain}'), tag == bytes('{tag}')) end\n"
        );
    }
    let program = File::new("vectors", program.as_bytes());
    let empty = File::new("vectors-empty", &capture(&[], PORTS));
    let script = format!("lua_script:{}", program.0.display());
    let Some(lines) = tshark(&empty, &["-X", &script]) else { return };
    assert_eq!(lines, "case\ttrue\ttrue\n".repeat(cases.len()));
}
