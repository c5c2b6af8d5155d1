//! The fields of a structure, from its source: names, documentation, and whether a file may leave them out.
//! rustfmt writes all fields alike, so parsing lines is enough.

/// A field of a structure that files are read into.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// The key in a file.
    pub(super) key: String,
    /// The text of its documentation.
    pub(super) about: String,
    /// `true` if a file may leave it out.
    pub(super) optional: bool,
    /// `true` if its type is another structure, whose keys belong in its place.
    pub(super) flattened: bool,
}

/// Returns the fields of `structure` in a source.
///
/// # Panics
/// Panics if the source has no such structure.
pub(super) fn fields(source: &str, structure: &str) -> Vec<Field> {
    // The indented one is inside a macro call.
    let (before, body) = ["pub struct", "struct", "    pub struct"]
        .into_iter()
        .find_map(|word| source.split_once(&format!("\n{word} {structure} {{\n")))
        .unwrap_or_else(|| panic!("no struct {structure}"));
    let (body, _) = body.split_once("\n}").expect("a structure ends");
    let attributes: Vec<&str> = before.lines().rev().take_while(|it| !it.is_empty()).collect();
    let on_all =
        |word: &str| attributes.iter().any(|it| it.contains("serde(") && it.contains(word));
    let (kebab, optional) = (on_all("kebab-case"), on_all("default"));
    let mut fields = Vec::new();
    let (mut about, mut field_attributes) = (String::new(), String::new());
    for line in body.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            about += text;
        } else if line.starts_with('#') {
            field_attributes += line;
        } else if let Some((name, of)) = line.trim_start_matches("pub ").split_once(": ") {
            let (about, field_attributes) =
                (std::mem::take(&mut about), std::mem::take(&mut field_attributes));
            let renamed = field_attributes
                .split_once("rename = \"")
                .and_then(|(_, rest)| rest.split_once('"'));
            let key = match renamed {
                Some((key, _)) => key.to_owned(),
                None if kebab => name.replace('_', "-"),
                None => name.to_owned(),
            };
            if field_attributes.contains("serde(skip)") {
                continue;
            }
            fields.push(Field {
                key,
                about: without_links(about.trim()),
                optional: optional
                    || field_attributes.contains("default")
                    || of.starts_with("Option<"),
                flattened: field_attributes.contains("flatten"),
            });
        }
    }
    fields
}

/// Returns the text without links of Rust's documentation, which lead nowhere in a page.
fn without_links(about: &str) -> String {
    about.replace("[`", "`").replace("`]", "`").replace("Self::", "")
}

#[test]
fn fields_have_the_names_of_keys_in_files() {
    let source = "\n#[derive(Debug)]\n#[serde(rename_all = \"kebab-case\")]\npub struct Host {\n    /// Its\n    /// [`Self::address`].\n    \
                  pub own_address: IpAddr,\n    /// How many.\n    #[serde(default = \"one\", rename = \"thread\")]\n    pub threads: u8,\n}\n";
    let field = |key: &str, about: &str, optional| Field {
        key: key.into(),
        about: about.into(),
        optional,
        flattened: false,
    };
    let want = [field("own-address", "Its `address`.", false), field("thread", "How many.", true)];
    assert_eq!(fields(source, "Host"), want);
}
