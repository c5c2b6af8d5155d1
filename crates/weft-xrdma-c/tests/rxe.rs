//! Programs in C between two Linux guests on the kernel's rxe, whose libibverbs has no part of Weft.
//!
//! `make rxe`

use std::path::Path;
use std::process::Command;

use weft_testkit::install_xrdma;
use weft_testkit::rxe::{Guests, NETWORK, wait_for};

/// The ports of the first guest's programs.
const PING_PONG: u16 = 7000;
const ECHOES: u16 = 7001;

/// Compiles a program of this crate for guests, beside the library, and returns its name there.
fn add_program(guests: &mut Guests, xrdma: &Path, source: &str) -> String {
    let name = Path::new(source).file_stem().expect("a name").to_str().expect("of ours");
    let program = xrdma.join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    compiler.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(source));
    compiler.arg("-I").arg(xrdma.join("include")).arg("-L").arg(xrdma.join("lib")).arg("-lxrdma");
    let output = compiler.output().expect("the compiler runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    guests.files().add_program(name, &program);
    format!("/{name}")
}

#[test]
#[ignore = "it boots two guests on emulated processors (make rxe)"]
fn programs_in_c_exchange_messages_between_two_guests_on_rxe() {
    let mut guests = match Guests::find() {
        Ok(guests) => guests,
        Err(missing) => return weft_testkit::skip("programs in C on rxe", &missing),
    };
    let xrdma = install_xrdma(Path::new(env!("CARGO_TARGET_TMPDIR")).join("xrdma-rxe"));
    guests.files().add_program("lib/libxrdma.so.1", &xrdma.join("lib/libxrdma.so.1"));
    let programs = ["examples/ping_pong.c", "tests/c/echoes.c", "tests/c/messages.c"];
    let [ping_pong, echoes, messages] =
        programs.map(|source| add_program(&mut guests, &xrdma, source));
    let server = format!("{ping_pong} {PING_PONG} & {echoes} {ECHOES}\n");
    let at = format!("{NETWORK}.1");
    let mut client = wait_for(&at, PING_PONG) + &wait_for(&at, ECHOES);
    let calls = [("0", "50"), ("64", "500"), ("4097", "50"), ("3000000", "3")];
    for (size, count) in calls {
        client += &format!("{ping_pong} {at}:{PING_PONG} {size} {count}\n");
    }
    client += &format!("{echoes} {at}:{ECHOES}\n{messages}\n");
    let outcome = guests.run(&server, &client);
    let [server, client] = outcome.consoles;
    println!("{client}");
    let mut expected =
        calls.map(|(size, count)| format!("{count} times {size} bytes there and back")).to_vec();
    expected.push("48 exchanges, all bytes as they were sent".into());
    expected.push("all calls behave as documented".into());
    for line in expected {
        assert!(
            client.lines().any(|printed| printed.trim_end() == line),
            "no {line:?}; of the other guest: {server}"
        );
    }
}
