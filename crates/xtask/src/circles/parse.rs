//! The modules of a crate: the items that each defines, and the names that it uses. Tests are left out, and so are names
//! inside the calls of macros.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

/// The path of a module from the crate's root.
pub(super) type ModulePath = Vec<String>;

/// The source of one crate.
#[derive(Debug, Default)]
pub(super) struct Crate {
    pub(super) files: Vec<File>,
    pub(super) modules: BTreeMap<ModulePath, Module>,
}

#[derive(Debug)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) module: ModulePath,
}

/// A module, in a file of its own or inside one.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// The index of its file.
    pub(super) file: usize,
    pub(super) items: BTreeSet<String>,
    pub(super) imports: Vec<Import>,
    /// Paths of two or more names in its code.
    pub(super) paths: BTreeSet<Vec<String>>,
}

/// One name that a `use` brings in.
#[derive(Debug)]
pub(super) struct Import {
    /// The path as written. `*` stands for all names.
    pub(super) path: Vec<String>,
    pub(super) name: String,
    /// `true` for a `pub use`: others reach the item by it, and the module itself may not need it.
    pub(super) is_export: bool,
}

impl Crate {
    /// Reads the files below `source`, from `lib.rs` and `main.rs` on.
    pub(super) fn read(source: &Path) -> Result<Self> {
        let mut read = Self::default();
        for root in ["lib.rs", "main.rs"].map(|name| source.join(name)) {
            if root.exists() {
                read.read_file(&root, source, Vec::new())?;
            }
        }
        Ok(read)
    }

    /// Reads a file and the modules that it declares, which lie in `folder`.
    fn read_file(&mut self, path: &Path, folder: &Path, module: ModulePath) -> Result<()> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let syntax = syn::parse_file(&text).with_context(|| path.display().to_string())?;
        let file = self.files.len();
        self.files.push(File { path: path.to_owned(), module: module.clone() });
        self.add_module(&syntax.items, file, folder, module)
    }

    fn add_module(
        &mut self,
        items: &[Item],
        file: usize,
        folder: &Path,
        module: ModulePath,
    ) -> Result<()> {
        let of = self.modules.entry(module.clone()).or_default();
        of.file = file;
        items.iter().for_each(|item| of.add(item));
        for item in items {
            let Item::Mod(inner) = item else { continue };
            // A module with a `path` belongs to another crate.
            if is_for_tests(&inner.attrs) || has(&inner.attrs, "path") {
                continue;
            }
            let name = inner.ident.to_string();
            let mut path = module.clone();
            path.push(name.clone());
            let below = folder.join(&name);
            if let Some((_, items)) = &inner.content {
                self.add_module(items, file, &below, path)?;
                continue;
            }
            let flat = folder.join(format!("{name}.rs"));
            let place = if flat.exists() { flat } else { below.join("mod.rs") };
            self.read_file(&place, &below, path)?;
        }
        Ok(())
    }
}

impl Module {
    fn add(&mut self, item: &Item) {
        if is_for_tests(attributes(item)) {
            return;
        }
        if let Item::Use(import) = item {
            let is_export = !matches!(import.vis, Visibility::Inherited);
            self.add_imports(&import.tree, &mut Vec::new(), is_export);
        } else if !matches!(item, Item::Mod(_)) {
            self.items.extend(name_of(item));
            self.visit_item(item);
        }
    }

    fn add_imports(&mut self, tree: &UseTree, before: &mut Vec<String>, is_export: bool) {
        let (last, name) = match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add_imports(&path.tree, before, is_export);
                before.pop();
                return;
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.add_imports(tree, before, is_export));
                return;
            }
            UseTree::Name(name) => (name.ident.to_string(), name.ident.to_string()),
            UseTree::Rename(name) => (name.ident.to_string(), name.rename.to_string()),
            UseTree::Glob(_) => ("*".to_owned(), "*".to_owned()),
        };
        let mut path = before.clone();
        // `use module::{self}` brings in the module.
        let name = if last == "self" {
            path.last().cloned().unwrap_or_default()
        } else {
            path.push(last);
            name
        };
        self.imports.push(Import { path, name, is_export });
    }
}

impl Visit<'_> for Module {
    fn visit_item_use(&mut self, import: &syn::ItemUse) {
        self.add_imports(&import.tree, &mut Vec::new(), false);
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let names: Vec<String> =
            path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if names.len() > 1 {
            self.paths.insert(names);
        }
        visit::visit_path(self, path);
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

fn has(attributes: &[Attribute], name: &str) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident(name))
}

/// Returns `true` for what only tests, models and fuzzers see: a `cfg` that names one of them.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let condition = list.tokens.to_string();
        let names = ["test", "fuzzing", "loom", "kani"];
        list.path.is_ident("cfg")
            && !condition.starts_with("not")
            && names.iter().any(|name| condition.contains(name))
    })
}
