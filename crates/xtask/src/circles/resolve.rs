//! The file that defines what a path names.

use std::collections::{BTreeMap, BTreeSet};

use super::parse::{Crate, ModulePath};

/// Names with the paths of their modules.
type Asked = BTreeSet<ModulePath>;

/// The thing that a path names.
enum Named {
    Module(ModulePath),
    /// The file of an item.
    Item(usize),
}

/// Returns the pairs of files of which the first needs the second, with a name that it needs. Arrows between a module
/// and one inside it are left out.
pub(super) fn arrows(of: &Crate) -> BTreeMap<(usize, usize), String> {
    let mut arrows = BTreeMap::new();
    for (path, module) in &of.modules {
        let imports =
            module.imports.iter().filter(|import| !import.is_export).map(|import| &import.path);
        for used in imports.chain(&module.paths) {
            let Some(Named::Item(file)) = named(of, path, used, &mut Asked::new()) else {
                continue;
            };
            let (from, to) = (&of.files[module.file].module, &of.files[file].module);
            if !from.starts_with(to) && !to.starts_with(from) {
                arrows
                    .entry((module.file, file))
                    .or_insert_with(|| used.last().cloned().unwrap_or_default());
            }
        }
    }
    arrows
}

/// Returns what `path` names within a module, `None` if it is of another crate or unknown. `asked` has the names that are
/// being followed: imports may be circles themselves.
fn named(of: &Crate, module: &[String], path: &[String], asked: &mut Asked) -> Option<Named> {
    let (first, rest) = path.split_first()?;
    let outer = |module: &[String]| Some(Named::Module(module.split_last()?.1.to_vec()));
    let start = match first.as_str() {
        "crate" => Named::Module(Vec::new()),
        "self" => Named::Module(module.to_vec()),
        "super" => outer(module)?,
        name => member(of, module, name, asked)?,
    };
    rest.iter().try_fold(start, |reached, name| match (reached, name.as_str()) {
        // A variant, or a function of a type.
        (item @ Named::Item(_), _) => Some(item),
        (Named::Module(module), "super") => outer(&module),
        (Named::Module(module), name) => member(of, &module, name, asked),
    })
}

/// Returns what a name means in a module: a module inside it, an item, or an import.
fn member(of: &Crate, module: &[String], name: &str, asked: &mut Asked) -> Option<Named> {
    let inner = [module, &[name.to_owned()]].concat();
    if of.modules.contains_key(&inner) {
        return Some(Named::Module(inner));
    }
    let here = of.modules.get(module)?;
    if here.items.contains(name) {
        return Some(Named::Item(here.file));
    }
    if !asked.insert(inner) {
        return None;
    }
    let mut exact = here.imports.iter().filter(|import| import.name == name);
    exact.find_map(|import| named(of, module, &import.path, asked)).or_else(|| {
        let mut all = here.imports.iter().filter(|import| import.name == "*");
        all.find_map(|import| {
            let (_, from) = import.path.split_last()?;
            let Named::Module(from) = named(of, module, from, asked)? else { return None };
            member(of, &from, name, asked)
        })
    })
}
