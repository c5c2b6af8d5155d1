//! The package between two Linux guests on the kernel's rxe, whose libibverbs has no part of Weft: Debian's interpreter runs its
//! examples and its own tests.
//!
//! `make rxe`

use std::path::{Path, PathBuf};
use std::process::Command;

use weft_testkit::rxe::{Guests, NETWORK, wait_for};

/// The ports of the first guest's programs.
const PING_PONG: u16 = 7000;
const ASYNCIO: u16 = 7001;
const ECHOES: u16 = 7002;

/// The folder of the package and its programs in a guest.
const FOLDER: &str = "weft-py";

/// Returns the interpreter of Debian and the folder of its standard library.
fn interpreter() -> Option<(PathBuf, PathBuf)> {
    let program = "import os, sys, sysconfig; print(os.path.realpath(sys.executable)); print(sysconfig.get_path('stdlib'))";
    let output = Command::new("/usr/bin/python3").args(["-c", program]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (executable, library) = text.trim_end().split_once('\n')?;
    Some((executable.into(), library.into()))
}

/// Adds the interpreter, the package and its programs.
fn add_python(guests: &mut Guests, (executable, library): (&Path, &Path)) {
    let files = guests.files();
    files.add_program("bin/python3", executable);
    // Without the tests of the interpreter, and what links it into other programs.
    files.add_below(library, &["test", "lib2to3", "config-3.11-x86_64-linux-gnu", "dist-packages"]);
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in ["python/weft", "examples", "tests/python"] {
        for file in source.join(folder).read_dir().expect("it is there").flatten() {
            let inside = format!("{FOLDER}/{folder}/{}", file.file_name().display());
            if file.path().is_file() {
                files.add_as(&inside, &file.path());
            }
        }
    }
    let test = std::env::current_exe().expect("a test has a path");
    let module = test.with_file_name("lib_weft.so");
    files.add_program(&format!("{FOLDER}/python/weft/_weft.abi3.so"), &module);
}

#[test]
#[ignore = "it boots two guests on emulated processors (make rxe)"]
fn programs_in_python_exchange_messages_between_two_guests_on_rxe() {
    let found = Guests::find().and_then(|guests| {
        let python = interpreter().ok_or("no /usr/bin/python3 (scripts/setup.sh rxe)")?;
        Ok((guests, python))
    });
    let (mut guests, (executable, library)) = match found {
        Ok(found) => found,
        Err(missing) => return weft_testkit::skip("programs in Python on rxe", &missing),
    };
    add_python(&mut guests, (&executable, &library));
    let set_up = format!("cd /{FOLDER}; export PYTHONPATH=python HOME=/tmp\n");
    let server = format!(
        "{set_up}\
         python3 examples/ping_pong.py {PING_PONG} & python3 examples/ping_pong_asyncio.py {ASYNCIO} &\n\
         python3 tests/python/echoes.py {ECHOES}\n"
    );
    let at = format!("{NETWORK}.1");
    let waits = [PING_PONG, ASYNCIO, ECHOES].map(|port| wait_for(&at, port)).concat();
    let client = format!(
        "{set_up}{waits}\
         python3 examples/ping_pong.py {at}:{PING_PONG} 64 200\n\
         python3 examples/ping_pong.py {at}:{PING_PONG} 3000000 3\n\
         python3 examples/ping_pong_asyncio.py {at}:{ASYNCIO} 8 20\n\
         python3 tests/python/echoes.py {at}:{ECHOES}\n\
         cd tests/python; PYTHONPATH=../../python python3 -m unittest test_sync.Calls test_sync.MemoryOfBodies\n"
    );
    let outcome = guests.run(&server, &client);
    let [server, client] = outcome.consoles;
    println!("{client}");
    for expected in [
        "200 times 64 bytes there and back",
        "3 times 3000000 bytes there and back",
        "8 times 20 there and back",
        "57 bodies and 20 side by side, all as they were sent",
    ] {
        assert!(client.contains(expected), "no {expected:?}; of the other guest: {server}");
    }
    assert!(client.lines().any(|line| line.trim_end() == "OK"), "of the other guest: {server}");
}
