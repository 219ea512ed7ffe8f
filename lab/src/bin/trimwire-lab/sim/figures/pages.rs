// SPDX-License-Identifier: Apache-2.0
//! Where documentation prints figures: between `<!-- generated: NAME KEY -->` and `<!-- end -->`.

use super::super::{read, write};
use anyhow::Context as _;
use std::path::{Path, PathBuf};

const BEGIN: &str = "<!-- generated: ";
const END: &str = "<!-- end -->";

/// A printed figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Printed {
    path: PathBuf,
    /// Of the line in front of it, from 1.
    pub(super) line: usize,
    name: String,
    /// Of what it was made of.
    pub(super) key: String,
    pub(super) text: String,
}

impl Printed {
    /// `docs/results/mlt.md:12`.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.path.display(), self.line)
    }

    /// Writes another text in its place.
    pub(super) fn replace(&self, key: &str, text: &str) -> anyhow::Result<()> {
        let page = read(&self.path)?;
        let old = block(&self.name, &self.key, &self.text);
        anyhow::ensure!(page.contains(&old), "{} changed meanwhile", self.place());
        write(&self.path, &page.replacen(&old, &block(&self.name, key, text), 1))
    }
}

fn block(name: &str, key: &str, text: &str) -> String {
    format!("{BEGIN}{name} {key} -->\n{text}{END}")
}

/// The figure of this name in a folder of pages and the folders in it, if one prints it.
pub(super) fn find(folder: &Path, name: &str) -> anyhow::Result<Option<Printed>> {
    for path in pages_in(folder)? {
        if let Some(printed) = find_in(&path, &read(&path)?, name)? {
            return Ok(Some(printed));
        }
    }
    Ok(None)
}

/// All pages, in an order that does not depend on the machine.
fn pages_in(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let unreadable = || format!("cannot read the folder {}", folder.display());
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(unreadable)? {
        let entry = entry.with_context(unreadable)?;
        // A link is not followed, so that folders have an end.
        entries.push((entry.path(), entry.file_type().with_context(unreadable)?.is_dir()));
    }
    entries.sort();
    let mut pages = Vec::new();
    for (path, is_folder) in entries {
        if is_folder {
            pages.append(&mut pages_in(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    Ok(pages)
}

fn find_in(path: &Path, page: &str, name: &str) -> anyhow::Result<Option<Printed>> {
    let begin = format!("{BEGIN}{name} ");
    let Some(at) = page.find(&begin) else { return Ok(None) };
    let line = page[..at].lines().count() + 1;
    let broken = || format!("{}:{line}: no '{END}' ends the figure {name}", path.display());
    let (key, rest) = page[at + begin.len()..].split_once(" -->\n").with_context(broken)?;
    let (text, _) = rest.split_once(END).with_context(broken)?;
    anyhow::ensure!(!text.contains(BEGIN), broken());
    let (path, name) = (path.to_owned(), name.to_owned());
    Ok(Some(Printed { path, line, name, key: key.to_owned(), text: text.to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_found_by_its_whole_name_and_replaced_where_it_stands() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("results")).unwrap();
        let page = folder.path().join("results/a.md");
        let text = "# A\n\n<!-- generated: one-two k -->\n| x |\n<!-- end -->\n\n<!-- generated: one k1 -->\n| y |\n<!-- end -->\nB\n";
        std::fs::write(&page, text).unwrap();
        let printed = find(folder.path(), "one").unwrap().unwrap();
        assert_eq!((printed.line, printed.key.as_str(), printed.text.as_str()), (7, "k1", "| y |\n"));
        printed.replace("k2", "| z |\n").unwrap();
        assert_eq!(read(&page).unwrap(), text.replace("one k1", "one k2").replace('y', "z"));
        assert_eq!(find(folder.path(), "three").unwrap(), None);
    }

    #[test]
    fn a_figure_without_an_end_is_named() {
        let error = find_in(Path::new("a.md"), "\n<!-- generated: one k -->\n| y |\n", "one").unwrap_err();
        assert_eq!(error.to_string(), "a.md:2: no '<!-- end -->' ends the figure one");
    }
}
