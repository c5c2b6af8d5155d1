//! Tests of the library that `weft run` loads before a program: the device in sysfs and /dev.

use std::process::Command;

use crate::library::{LIBRARY, program};
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
