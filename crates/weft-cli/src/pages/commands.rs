//! Generates `docs/reference/commands.md`: every command with its arguments, options and examples.

use clap::{Arg, Command, CommandFactory};

use super::{assert_page, cell, table};
use crate::cmd::{Arguments, EXIT_CODES};

const BEGINNING: &str = "\
# Commands

<!-- Written by `BLESS=1 cargo test -p weft-cli --bin weft pages` from the parser; edit crates/weft-cli/src/cmd. -->

Every command with its arguments and options. `weft COMMAND --help` prints the same, `weft man FOLDER` writes manual pages, and `weft
completions SHELL` prints completions. `--json` is an option of every command: it prints JSON instead of text.

## Exit codes

";

fn render() -> String {
    let mut root = Arguments::command();
    root.build();
    let mut page = BEGINNING.to_owned();
    page += EXIT_CODES;
    page.push('\n');
    visit(&root, "weft", &mut page);
    page
}

fn visit(command: &Command, path: &str, page: &mut String) {
    page.push_str(&format!("\n## {path}\n\n"));
    let about = command.get_long_about().or_else(|| command.get_about());
    page.push_str(&format!("{}\n\n", about.map(ToString::to_string).unwrap_or_default()));
    let usage = command.clone().bin_name(path.to_owned()).render_usage().to_string();
    page.push_str(&format!("```text\n{usage}\n```\n\n"));
    let rows: Vec<[String; 2]> = command.get_arguments().filter(is_own).map(row).collect();
    if !rows.is_empty() {
        page.push_str(&table(["argument or option", "what it does"], &rows));
    }
    let children = || command.get_subcommands().filter(|child| child.get_name() != "help");
    let rows: Vec<[String; 2]> = children()
        .map(|child| {
            let path = format!("{path} {}", child.get_name());
            let about = child.get_about().map(ToString::to_string).unwrap_or_default();
            [format!("[`{path}`](#{})", path.replace(' ', "-")), cell(&about)]
        })
        .collect();
    if !rows.is_empty() {
        page.push_str(&table(["command", "what it does"], &rows));
    }
    if let Some(examples) = command.get_after_help() {
        page.push_str(&format!("```text\n{}\n```\n", examples.to_string().trim_end()));
    }
    children().for_each(|child| visit(child, &format!("{path} {}", child.get_name()), page));
}

/// Returns `true` unless every command has this argument.
fn is_own(argument: &&Arg) -> bool {
    !["help", "version", "json"].contains(&argument.get_id().as_str()) && !argument.is_hide_set()
}

fn row(argument: &Arg) -> [String; 2] {
    let short = argument.get_short().map(|letter| format!("-{letter}, ")).unwrap_or_default();
    let help = argument.get_long_help().or_else(|| argument.get_help());
    let mut what = help.map(ToString::to_string).unwrap_or_default();
    let values = argument.get_possible_values();
    // A flag takes true and false, but users do not write them.
    if argument.get_action().takes_values() && !values.is_empty() {
        let names: Vec<_> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
        what += &format!(" [values: {}]", names.join(", "));
    }
    let defaults: Vec<_> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if argument.get_action().takes_values() && !defaults.is_empty() {
        what += &format!(" [default: `{}`]", defaults.join(" "));
    }
    [format!("`{short}{argument}`").replace('|', "\\|"), cell(&what)]
}

#[test]
fn the_page_of_commands_agrees_with_the_parser() {
    assert_page("docs/reference/commands.md", &render());
}
