//! A program in a pseudo-terminal of 80 columns and 24 lines, and a terminal emulator that shows what the program draws.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use vt100::{Parser, Screen};

/// A program in a terminal; it is killed with this value.
pub(crate) struct Terminal {
    pub(crate) child: Child,
    keyboard: File,
    emulator: Arc<Mutex<Parser>>,
}

impl Terminal {
    /// Starts a command in a new terminal.
    pub(crate) fn start(command: &mut Command) -> Self {
        let (columns, lines) = (80, 24);
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let path = std::ffi::OsStr::from_bytes(name.to_bytes());
        let theirs = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let size = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&theirs, size).unwrap();
        let [input, output] = [(); 2].map(|()| theirs.try_clone().unwrap());
        let command = command.stdin(input).stdout(output).stderr(theirs).env("TERM", "xterm");
        let child = command.spawn().unwrap();
        let keyboard = File::from(ours);
        let size = |length| NonZeroU16::new(length).unwrap();
        let emulator = Arc::new(Mutex::new(Parser::new(size(lines), size(columns), 0)));
        let (mut reader, screen) = (keyboard.try_clone().unwrap(), Arc::clone(&emulator));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The read fails when the program has closed the terminal.
            while let Ok(length @ 1..) = reader.read(&mut bytes) {
                screen.lock().unwrap().process(&bytes[..length]);
            }
        });
        Self { child, keyboard, emulator }
    }

    /// Types keys.
    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn emulator(&self) -> MutexGuard<'_, Parser> {
        self.emulator.lock().unwrap()
    }

    /// Returns a property of the screen.
    pub(crate) fn see<T>(&self, look: impl FnOnce(&Screen) -> T) -> T {
        look(self.emulator().screen())
    }

    /// Returns the text of the screen.
    pub(crate) fn text(&self) -> String {
        self.see(Screen::contents)
    }

    /// Returns `true` if the terminal is as a shell expects it: it shows its own screen and the cursor, echoes and edits lines.
    pub(crate) fn is_restored(&self) -> bool {
        let shows = self.see(|screen| !screen.alternate_screen() && !screen.hide_cursor());
        let modes = tcgetattr(&self.keyboard).unwrap().local_modes;
        shows && modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
