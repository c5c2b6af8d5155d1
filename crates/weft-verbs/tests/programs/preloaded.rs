//! Tests of the library that `weft run` loads before a program: the device in sysfs and /dev, and the warning.

use std::process::{Child, Command};

use crate::library::{LIBRARY, program};
use crate::pair::{OneHost, Stage, run};
use crate::processes::run_c_with;

fn preload(command: &mut Command) -> &mut Command {
    command.env("LD_PRELOAD", LIBRARY.join("libweft_preload.so"))
}

/// Returns the standard output of a program, which must succeed, and its standard error.
fn read(words: &[&str]) -> [String; 2] {
    let output = preload(&mut program(words)).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).trim_end().to_owned())
}

#[test]
fn stacks_find_the_device_where_they_look_for_it() {
    run_c_with("sysfs.c", |program| {
        preload(program);
    });
}

/// Coreutils and Python resolve links themselves, one after the other.
#[test]
fn scripts_find_the_device() {
    let device = "/sys/class/infiniband/weft0/device";
    let slot = "/sys/devices/pci5745:00/5745:00:00.0";
    assert_eq!(read(&["readlink", "-f", device])[0], slot);
    assert_eq!(
        read(&["ls", "/sys/class/infiniband", "/dev/infiniband"])[0].matches("weft0").count(),
        2
    );
    let lines =
        "import os, sys; print(os.path.realpath(sys.argv[1]), os.listdir('/sys/class/infiniband'))";
    assert_eq!(read(&["python3", "-c", lines, device])[0], format!("{slot} ['weft0']"));
    let guid = read(&["cat", "/sys/class/infiniband/weft0/node_guid"]);
    let described = read(&["ibv_devinfo"]);
    assert!(described[0].contains(&format!("node_guid:\t\t\t{}", guid[0])), "{described:?}");
}

/// Lists the devices through a name that only headers' packages have, then sends over TCP.
const GOES_ELSEWHERE: &str = "
import ctypes, socket, sys
verbs = ctypes.CDLL('libibverbs.so')
verbs.ibv_get_device_list.restype = ctypes.c_void_p
if 'list' in sys.argv: verbs.ibv_get_device_list(None)
listener = socket.create_server(('127.0.0.1', 0))
if 'send' in sys.argv: socket.create_connection(listener.getsockname())
";

#[test]
fn a_program_that_finds_the_device_and_uses_tcp_is_told_so() {
    let run = |words: &str| {
        read(&[&["python3", "-c", GOES_ELSEWHERE], &*words.split(' ').collect::<Vec<_>>()].concat())
    };
    let [_, warning] = run("list send");
    assert!(warning.starts_with("weft: python3") && warning.contains("found weft0"), "{warning}");
    assert_eq!(warning.lines().count(), 1, "{warning}");
    for silent in ["list", "send"] {
        assert_eq!(run(silent)[1], "");
    }
    let quiet = ["env", "WEFT_WARN_UNUSED=off", "python3", "-c", GOES_ELSEWHERE, "list", "send"];
    assert_eq!(read(&quiet)[1], "");
}

/// perftest connects over TCP too, but sends over the device.
#[test]
fn a_program_that_uses_the_device_is_not() {
    struct Preloaded;
    impl Stage for Preloaded {
        fn server(&self) -> String {
            OneHost.server()
        }
        fn start(&self, second: bool, command: &mut Command) -> Child {
            OneHost.start(second, preload(command))
        }
    }
    let printed = run(&Preloaded, "ib_write_bw -n 20");
    assert!(printed.client.contains("#bytes") && !printed.client.contains("weft:"), "{printed:?}");
}
