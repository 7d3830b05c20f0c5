//! The terminal of the log view, where it runs.

use serde_json::{Value, json};

use crate::visit::Visit;

/// Text as it comes, the lines that a terminal would show, and for some the styles.
const CASES: [(&str, &str, &str); 12] = [
    ("plain lines", "a\r\nb\n", "a|b|"),
    ("a line that is written over", "10%\r100%\n", "100%|"),
    ("a shorter text leaves the rest", "abcdef\rxy\n", "xycdef|"),
    ("erase to the end", "abcdef\rxy\x1b[K\n", "xy|"),
    ("erase the line", "abcdef\x1b[2K\rz\n", "z|"),
    ("backspace", "ab\x08c\n", "ac|"),
    ("up and over", "one\ntwo\n\x1b[2A\x1b[2KONE\n", "ONE|two|"),
    ("time stamps are taken out", "\x1b_bk;t=1700000000000\x07hello\n", "hello|"),
    ("titles of terminals are dropped", "\x1b]0;title\x07x\n", "x|"),
    ("unknown sequences are dropped", "\x1b[?25l\x1b(Bx\x1b[5n\n", "x|"),
    ("a link of the service", "\x1b]1339;url='https://a.example/';content='A'\x07\n", "A|"),
    ("a lone escape at the end waits", "x\x1b", "x"),
];

#[tokio::test]
async fn a_terminal_would_show_the_same() {
    let visit = Visit::of("steps: []").await;
    visit.go("/").await;
    visit.says("Pipelines").await;
    let module = "import(document.querySelector('script').src.replace('app.js', 'ansi.js'))";
    for (name, text, expected) in CASES {
        // Whole, and a character at a time: the result must be the same.
        for pieces in ["[text]", "[...text]"] {
            let shown = visit
                .page
                .value(&format!(
                    "{module}.then(({{ Terminal }}) => {{ const text = {}; const terminal = new Terminal(); \
                     for (const piece of {pieces}) terminal.write(piece); \
                     return terminal.lines.map((line) => line.text).join('|'); }})",
                    json!(text)
                ))
                .await
                .unwrap();
            assert_eq!(shown, json!(expected), "{name}");
        }
    }
    let style = async |text: &str| -> Value {
        let expression = format!(
            "{module}.then(({{ Terminal }}) => {{ const terminal = new Terminal(); terminal.write({}); \
             const [line] = terminal.lines; return terminal.styles[line.runs?.[1] ?? 0]; }})",
            json!(text)
        );
        visit.page.value(&expression).await.unwrap()
    };
    assert_eq!(style("\x1b[1;31mx").await["fg"], json!(1));
    assert_eq!(style("\x1b[1;31mx").await["bold"], json!(true));
    assert_eq!(style("\x1b[97mx").await["fg"], json!(15));
    assert_eq!(style("\x1b[38;5;208mx").await["fg"], json!(208));
    assert_eq!(style("\x1b[38;2;1;2;3;4mx").await["fg"], json!("rgb(1 2 3)"));
    assert_eq!(style("\x1b[38;2;1;2;3;4mx").await["underline"], json!(true));
    assert_eq!(style("\x1b[48:2::1:2:3mx").await["bg"], json!("rgb(1 2 3)"));
    assert_eq!(style("\x1b[31m\x1b[mx").await["fg"], Value::Null);
    assert_eq!(style("\x1b]8;;https://a.example/\x1b\\x").await["link"], json!("https://a.example/"));
    assert_eq!(style("\x1b]8;;javascript:alert(1)\x07x").await["link"], Value::Null);
    visit.is_clean();
}
