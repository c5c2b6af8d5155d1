//! Checks that command lines of `weft` in the pages' blocks name subcommands and options that exist.

use std::fs;
use std::path::Path;

use clap::{Arg, ArgAction, Command, CommandFactory};

use super::{in_repository, markdown};
use crate::cmd::Arguments;

/// Languages of blocks with command lines, and the separator after which a line has an explanation: a comment, or a
/// column.
const LANGUAGES: [(&str, &str); 3] = [("sh", " #"), ("text", "  "), ("console", " #")];

/// Words that run the command after them.
const RUNNERS: [&str; 6] = ["sudo", "env", "time", "do", "then", "exec"];

#[test]
fn command_lines_of_the_pages_name_existing_commands() {
    let mut root = Arguments::command();
    root.build();
    let mut faults = Vec::new();
    let mut count = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for (line, words) in command_lines(&text) {
            count += 1;
            if let Err(why) = check(&root, &words) {
                faults.push(format!("{}:{line}: {}: {why}", page.display(), words.join(" ")));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(count > 300, "{count} command lines were found");
}

/// Returns the pages of `docs/`, and those of the root that describe the present state.
fn pages() -> Vec<std::path::PathBuf> {
    fn collect(folder: &Path, pages: &mut Vec<std::path::PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, pages);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                pages.push(path);
            }
        }
    }
    let mut pages = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(in_repository).to_vec();
    collect(&in_repository("docs"), &mut pages);
    pages
}

/// Returns the words of each command line of `weft`, with the number of its line.
fn command_lines(page: &str) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    for block in markdown::blocks(page) {
        let known = LANGUAGES.iter().find(|(language, _)| *language == block.language);
        let Some((_, end)) = known else { continue };
        let mut text = String::new();
        let mut begin = block.line;
        for (line, number) in block.lines.iter().zip(block.line..) {
            let line = line.trim_start();
            let line = line.find(end).map_or(line, |at| &line[..at]);
            if text.is_empty() {
                begin = number;
            }
            if let Some(part) = line.strip_suffix('\\') {
                text.push_str(part);
                continue;
            }
            text.push_str(line);
            found.extend(commands(&text).into_iter().map(|words| (begin, words)));
            text.clear();
        }
    }
    found
}

/// Returns the commands of `weft` in a line of a shell, including those that another command runs.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    for words in simple_commands(line) {
        let mut words = words.as_slice();
        while words.first().is_some_and(|word| is_before_a_command(word)) {
            words = &words[1..];
        }
        let is_weft =
            |word: &String| Path::new(word).file_name().is_some_and(|name| name == "weft");
        if !words.first().is_some_and(is_weft) {
            continue;
        }
        let (own, behind) = match words.iter().position(|word| word == "--") {
            Some(at) => (&words[..at], &words[at + 1..]),
            None => (words, &[][..]),
        };
        commands.push(own.to_vec());
        commands.extend(self::commands(&behind.join(" ")));
    }
    commands
}

fn is_before_a_command(word: &str) -> bool {
    let variable = word.split_once('=').is_some_and(|(name, _)| {
        name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    });
    RUNNERS.contains(&word) || word == "-E" || variable
}

/// Splits a line into its commands. Words keep their quotes' content, redirections are left out.
fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![vec![]];
    let mut word = String::new();
    let mut quote = None;
    let mut redirected = false;
    for letter in line.chars().chain([';']) {
        if let Some(open) = quote {
            if letter == open {
                quote = None
            } else {
                word.push(letter)
            }
            continue;
        }
        match letter {
            '\'' | '"' => quote = Some(letter),
            ' ' | ';' | '&' | '|' | '(' | ')' | '<' | '>' => {
                let skipped = std::mem::replace(&mut redirected, matches!(letter, '<' | '>'));
                // The space after a redirection belongs to it; a number before one is a descriptor.
                if word.is_empty() && skipped && letter == ' ' {
                    redirected = true;
                }
                let descriptor = redirected && word.chars().all(|letter| letter.is_ascii_digit());
                let whole = std::mem::take(&mut word);
                if !whole.is_empty() && !skipped && !descriptor {
                    commands.last_mut().expect("never empty").push(whole);
                }
                if matches!(letter, ';' | '&' | '|' | '(' | ')') {
                    commands.push(vec![]);
                }
            }
            _ => word.push(letter),
        }
    }
    commands.retain(|words| !words.is_empty());
    commands
}

/// Checks words against the parser: names of subcommands and options, and if a command takes arguments at all.
fn check(root: &Command, words: &[String]) -> Result<(), String> {
    let mut command = root;
    let mut words = words[1..].iter();
    while let Some(word) = words.next() {
        if word.contains('…') || word == "..." {
            return Ok(());
        }
        if let Some(option) = word.strip_prefix("--") {
            let (name, value) =
                option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
            let argument = long(command, name)
                .ok_or_else(|| format!("`{}` has no option --{name}", command.get_name()))?;
            if value.is_none() && takes_a_word(argument) {
                words.next();
            }
        } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            let letter = letters.chars().next().expect("not empty");
            let argument = short(command, letter)
                .ok_or_else(|| format!("`{}` has no option -{letter}", command.get_name()))?;
            if letters.len() == 1 && takes_a_word(argument) {
                words.next();
            }
        } else if let Some(child) = command.find_subcommand(word) {
            command = child;
        } else if command.get_positionals().next().is_none() {
            // COMMAND and the like stand for any command.
            let placeholder = word.chars().all(|letter| letter.is_ascii_uppercase());
            if placeholder || word.contains('|') {
                return Ok(());
            }
            return Err(format!("`{}` has no subcommand or argument {word}", command.get_name()));
        }
    }
    Ok(())
}

fn long<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let has = |argument: &&Arg| {
        argument.get_long_and_visible_aliases().is_some_and(|all| all.contains(&name))
    };
    command.get_arguments().find(has)
}

fn short(command: &Command, letter: char) -> Option<&Arg> {
    command.get_arguments().find(|argument| argument.get_short() == Some(letter))
}

fn takes_a_word(argument: &Arg) -> bool {
    let least = argument.get_num_args().map_or(1, |range| range.min_values());
    matches!(argument.get_action(), ArgAction::Set | ArgAction::Append) && least > 0
}

#[test]
fn commands_are_found_in_lines_of_a_shell() {
    let words = |line: &str| {
        let all = commands(line).into_iter();
        all.map(|words| words.join(" ")).collect::<Vec<_>>()
    };
    let line = "A=1 sudo -E target/release/weft lab exec h0 -- weft perf client 10.0.0.1 > a 2>&1 & echo weft; weft stat | jq .";
    assert_eq!(
        words(line),
        ["target/release/weft lab exec h0", "weft perf client 10.0.0.1", "weft stat"]
    );
    assert_eq!(words("x $(weft list 'a b')"), ["weft list a b"]);
}

#[test]
fn a_command_that_does_not_exist_is_named() {
    let mut root = Arguments::command();
    root.build();
    let check = |line: &str| check(&root, &commands(line)[0]).map_err(|why| why.replace('`', ""));
    assert_eq!(check("weft lab up --spines 4 -n x"), Ok(()));
    assert_eq!(check("weft lab list"), Err("lab has no subcommand or argument list".into()));
    assert_eq!(check("weft lab up --spine 4"), Err("up has no option --spine".into()));
    assert_eq!(check("weft sim run a.toml --json --seeds=2"), Ok(()));
}
