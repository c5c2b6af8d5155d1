//! `weft key`: makes the keys that connections are encrypted with.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Subcommand;
use serde_json::json;
use weft_seal::PrivateKey;
use weft_udp::EncryptionSettings;

use weft_report::terminal::Output;

/// Make the keys that connections are encrypted with: identities of hosts, and keys that hosts share
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  weft key new identity                   a host's private key; prints the public key, for other hosts' lists
  weft key public identity                prints it again
  weft key psk psk                        a key that all hosts have

  weft perf server --identity identity --peers peers
  weft perf server --preshared-key psk

A file of peers has a public key on each line, and after it a comment. Files of secrets have mode 0600, and others are not \
read. docs/encryption.md has the variables that all programs read."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a host's identity: write a private key to a new file, print the public key
    #[command(after_help = "\
Examples:
  weft key new identity
  weft key new identity >> peers          the public key, into the list of those that are accepted")]
    New {
        /// The file; it must not exist
        file: PathBuf,
    },
    /// Print the public key of a private key
    #[command(after_help = "\
Examples:
  weft key public identity
  weft key public identity --json")]
    Public {
        /// A file that `weft key new` wrote
        file: PathBuf,
    },
    /// Make a pre-shared key: write 32 random bytes to a new file
    #[command(after_help = "\
Examples:
  weft key psk psk
  weft key psk psk && scp -p psk host2:")]
    Psk {
        /// The file; it must not exist
        file: PathBuf,
    },
}

pub(crate) fn run(arguments: Args, output: Output) -> Result<ExitCode> {
    match arguments.verb {
        Verb::New { file } => {
            let private = PrivateKey::new(random()?);
            write_secret(&file, &private.to_hex())?;
            show(&file, &private, output)?;
        }
        Verb::Public { file } => {
            let identity = Some(file.clone());
            let config =
                EncryptionSettings { identity, ..EncryptionSettings::default() }.config()?;
            show(&file, &config.identity.context("the file has a key")?, output)?;
        }
        Verb::Psk { file } => {
            let digits: String = random()?.iter().map(|byte| format!("{byte:02x}")).collect();
            write_secret(&file, &digits)?;
            output.value(&json!({ "file": file }), || {
                format!("{}; copy it to the other hosts", file.display())
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show(file: &Path, private: &PrivateKey, output: Output) -> Result<()> {
    let public = private.public().to_string();
    output.value(&json!({ "file": file, "public": public }), || public.clone())
}

fn random() -> Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).context("the kernel gives no random bytes")?;
    Ok(bytes)
}

/// Writes a secret to a new file that only its owner can read. An existing file is kept: it may hold a key in use.
fn write_secret(file: &Path, digits: &str) -> Result<()> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    let mut out = opened.with_context(|| format!("cannot make {}", file.display()))?;
    writeln!(out, "{digits}").and_then(|()| out.sync_all()).with_context(|| {
        let _ = std::fs::remove_file(file);
        format!("cannot write {}", file.display())
    })
}
