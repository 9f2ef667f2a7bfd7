use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};

/// A code block of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The number of the line after its opening fence.
    pub line: usize,
    /// What stands after the fence: `rust,no_run`. Empty for an indented block.
    pub kind: String,
    /// Its lines.
    pub text: String,
}

/// The code blocks of a document in Markdown.
pub fn blocks(markdown: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    for (event, range) in Parser::new(markdown).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                let kind = match kind {
                    CodeBlockKind::Fenced(kind) => kind.into_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                let line = markdown[..range.start].matches('\n').count() + 2;
                open = Some(Block { line, kind, text: String::new() });
            }
            Event::Text(text) => {
                if let Some(block) = &mut open {
                    block.text.push_str(&text);
                }
            }
            Event::End(TagEnd::CodeBlock) => found.extend(open.take()),
            _ => {}
        }
    }
    found
}

/// A command of a `console` block, and the output that the document shows for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The number of its line in the document.
    pub line: usize,
    /// The command, for a shell.
    pub command: String,
    /// The output, line by line.
    pub output: Vec<String>,
}

/// The commands of a `console` block.
///
/// # Panics
///
/// If the block begins with output.
pub fn steps(block: &Block) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (line, text) in (block.line..).zip(block.text.lines()) {
        if let Some(command) = text.strip_prefix("$ ") {
            steps.push(Step { line, command: command.to_owned(), output: Vec::new() });
            continue;
        }
        let step =
            steps.last_mut().unwrap_or_else(|| panic!("line {line}: a console block begins with `$ `"));
        match text.strip_prefix("> ") {
            Some(more) if step.output.is_empty() => {
                step.command.push('\n');
                step.command.push_str(more);
            }
            _ => step.output.push(text.to_owned()),
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_steps_know_their_lines() {
        let document = "# Title\n\n```console\n$ for a in b; do\n>   echo $a\n> done\nb\n\nc\n$ true\n```\n\n```rust\nfn\n```\n";
        let found = blocks(document);
        assert_eq!(
            found.iter().map(|block| (block.line, &*block.kind)).collect::<Vec<_>>(),
            [(4, "console"), (14, "rust")]
        );
        let output = ["b", "", "c"].map(str::to_owned).to_vec();
        let first = Step { line: 4, command: "for a in b; do\n  echo $a\ndone".into(), output };
        assert_eq!(steps(&found[0]), [first, Step { line: 10, command: "true".into(), output: Vec::new() }]);
    }
}
