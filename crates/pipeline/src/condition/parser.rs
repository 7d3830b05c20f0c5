//! From text to expression.

use regex::RegexBuilder;

use super::{ConditionProblem, Expression, Literal, Operator, Pattern};

/// How deeply parentheses and `!` may be nested.
const MAX_DEPTH: usize = 40;
/// The largest compiled regular expression, in bytes.
const MAX_REGEX: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq)]
enum Token {
    /// `build.branch`, `true`, `includes`
    Word(String),
    Text(String),
    Int(i64),
    Regex(Pattern),
    /// An operator or a parenthesis.
    Sign(&'static str),
}

impl Token {
    fn shown(&self) -> String {
        match self {
            Self::Word(word) => word.clone(),
            Self::Text(text) => format!("the string {text:?}"),
            Self::Int(value) => value.to_string(),
            Self::Regex(pattern) => format!("/{}/", pattern.source),
            Self::Sign(sign) => (*sign).to_owned(),
        }
    }
}

/// Longer ones first.
const SIGNS: [&str; 9] = ["==", "!=", "=~", "!~", "&&", "||", "!", "(", ")"];

/// Reads a whole condition.
pub(super) fn parse(text: &str) -> Result<Expression, ConditionProblem> {
    let tokens = Lexer { text, at: 0 }.tokens()?;
    let mut parser = Parser { text, tokens, next: 0, depth: 0 };
    let expression = parser.any()?;
    match parser.tokens.get(parser.next) {
        None => Ok(expression),
        Some(_) => Err(parser.expected("&&, || or the end")),
    }
}

/// A problem at a byte of the text.
fn problem(text: &str, at: usize, reason: impl Into<String>) -> ConditionProblem {
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
    ConditionProblem { line, column, reason: reason.into() }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl Lexer<'_> {
    fn tokens(mut self) -> Result<Vec<(usize, Token)>, ConditionProblem> {
        let mut tokens = Vec::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(first) = rest.chars().next() else { return Ok(tokens) };
            let start = self.at;
            if first.is_whitespace() {
                self.at += first.len_utf8();
                continue;
            }
            if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            let token = match first {
                '"' | '\'' => Token::Text(self.string(first)?),
                '/' => Token::Regex(self.regex()?),
                '0'..='9' | '-' => Token::Int(self.integer()?),
                'a'..='z' | 'A'..='Z' | '_' => Token::Word(self.word()),
                _ => {
                    let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
                    let unknown = || problem(self.text, start, format!("{first:?} means nothing here"));
                    let sign = sign.ok_or_else(unknown)?;
                    self.at += sign.len();
                    Token::Sign(sign)
                }
            };
            tokens.push((start, token));
        }
    }

    fn take_while(&mut self, is: impl Fn(char) -> bool) -> String {
        let rest = &self.text[self.at..];
        let end = rest.find(|c| !is(c)).unwrap_or(rest.len());
        self.at += end;
        rest[..end].to_owned()
    }

    fn word(&mut self) -> String {
        self.take_while(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
    }

    fn integer(&mut self) -> Result<i64, ConditionProblem> {
        let start = self.at;
        self.at += usize::from(self.text[start..].starts_with('-'));
        self.take_while(|c| c.is_ascii_alphanumeric());
        let digits = &self.text[start..self.at];
        digits.parse().map_err(|_| problem(self.text, start, format!("{digits:?} is no whole number")))
    }

    /// Up to the closing quote; `\` keeps the next quote or backslash from being one.
    fn string(&mut self, quote: char) -> Result<String, ConditionProblem> {
        let start = self.at;
        let mut text = String::new();
        let mut chars = self.text[start + 1..].char_indices().peekable();
        while let Some((offset, c)) = chars.next() {
            match c {
                '\\' if chars.peek().is_some_and(|(_, next)| *next == '\\' || *next == quote) => {
                    text.extend(chars.next().map(|(_, escaped)| escaped));
                }
                c if c == quote => {
                    self.at = start + 1 + offset + quote.len_utf8();
                    return Ok(text);
                }
                c => text.push(c),
            }
        }
        Err(problem(self.text, start, format!("this string has no closing {quote}")))
    }

    /// Up to the next `/` that no `\` precedes, and the flag.
    fn regex(&mut self) -> Result<Pattern, ConditionProblem> {
        let start = self.at;
        let body = &self.text[start + 1..];
        let mut escaped = false;
        let end = body.find(|c| {
            let closes = c == '/' && !escaped;
            escaped = c == '\\' && !escaped;
            closes || c == '\n'
        });
        let Some(end) = end.filter(|end| body[*end..].starts_with('/')) else {
            return Err(problem(self.text, start, "this regular expression has no closing /"));
        };
        let source = body[..end].to_owned();
        self.at = start + 1 + end + 1;
        let flags_at = self.at;
        let flags = self.take_while(|c| c.is_ascii_alphanumeric());
        if !matches!(flags.as_str(), "" | "i") {
            return Err(problem(self.text, flags_at, format!("unknown flag {flags:?}; there is i")));
        }
        let ignore_case = flags == "i";
        let regex = RegexBuilder::new(&source.replace("\\/", "/"))
            .case_insensitive(ignore_case)
            .size_limit(MAX_REGEX)
            .build()
            .map_err(|error| {
                let reason = error.to_string();
                let last = reason.lines().last().unwrap_or_default();
                problem(self.text, start, format!("/{source}/ is no regular expression: {}", last.trim()))
            })?;
        Ok(Pattern { source, ignore_case, regex })
    }
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<(usize, Token)>,
    next: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(_, token)| token)
    }

    fn eat(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Sign(next)) if *next == sign);
        self.next += usize::from(found);
        found
    }

    fn expected(&self, wanted: &str) -> ConditionProblem {
        match self.tokens.get(self.next) {
            Some((at, token)) => {
                problem(self.text, *at, format!("expected {wanted}, found {}", token.shown()))
            }
            None => problem(self.text, self.text.len(), format!("expected {wanted}, found the end")),
        }
    }

    fn any(&mut self) -> Result<Expression, ConditionProblem> {
        let mut operands = vec![self.all()?];
        while self.eat("||") {
            operands.push(self.all()?);
        }
        Ok(one_or(operands, Expression::Or))
    }

    fn all(&mut self) -> Result<Expression, ConditionProblem> {
        let mut operands = vec![self.comparison()?];
        while self.eat("&&") {
            operands.push(self.comparison()?);
        }
        Ok(one_or(operands, Expression::And))
    }

    fn comparison(&mut self) -> Result<Expression, ConditionProblem> {
        let left = self.unary()?;
        for (sign, negated) in [("=~", false), ("!~", true)] {
            if self.eat(sign) {
                let Some(Token::Regex(pattern)) = self.peek().cloned() else {
                    return Err(self.expected("a regular expression such as /^v[0-9]/"));
                };
                self.next += 1;
                return Ok(Expression::Match { value: Box::new(left), pattern, negated });
            }
        }
        let operator = match self.peek() {
            Some(Token::Sign("==")) => Operator::Equal,
            Some(Token::Sign("!=")) => Operator::Unequal,
            Some(Token::Word(word)) if word == "includes" => Operator::Includes,
            _ => return Ok(left),
        };
        self.next += 1;
        Ok(Expression::Compare(Box::new(left), operator, Box::new(self.unary()?)))
    }

    fn unary(&mut self) -> Result<Expression, ConditionProblem> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.expected(&format!("at most {MAX_DEPTH} levels of nesting")));
        }
        let expression = if self.eat("!") {
            Expression::Not(Box::new(self.unary()?))
        } else if self.eat("(") {
            let inner = self.any()?;
            if !self.eat(")") {
                return Err(self.expected("&&, || or )"));
            }
            inner
        } else {
            self.operand()?
        };
        self.depth -= 1;
        Ok(expression)
    }

    fn operand(&mut self) -> Result<Expression, ConditionProblem> {
        let literal = match self.peek() {
            Some(Token::Text(text)) => Literal::Text(text.clone()),
            Some(Token::Int(value)) => Literal::Int(*value),
            Some(Token::Word(word)) => match word.as_str() {
                "true" => Literal::Bool(true),
                "false" => Literal::Bool(false),
                "null" => Literal::Null,
                "includes" => return Err(self.expected("a value")),
                name => {
                    let name = name.to_owned();
                    return self.named(name);
                }
            },
            Some(Token::Regex(_)) => {
                return Err(self.expected("a value (regular expressions follow =~ or !~)"));
            }
            _ => return Err(self.expected("a value")),
        };
        self.next += 1;
        Ok(Expression::Literal(literal))
    }

    /// A variable, or a call of `env`.
    fn named(&mut self, name: String) -> Result<Expression, ConditionProblem> {
        let at = self.tokens[self.next].0;
        self.next += 1;
        if !self.eat("(") {
            return Ok(Expression::Variable(name));
        }
        if name != "env" && name != "build.env" {
            let reason = format!("unknown function {name}; there is build.env(\"NAME\")");
            return Err(problem(self.text, at, reason));
        }
        let Some(Token::Text(variable)) = self.peek().cloned() else {
            return Err(self.expected("the name of a variable in quotes"));
        };
        self.next += 1;
        if self.eat(")") { Ok(Expression::Env(variable)) } else { Err(self.expected(")")) }
    }
}

fn one_or(mut operands: Vec<Expression>, many: impl FnOnce(Vec<Expression>) -> Expression) -> Expression {
    match operands.len() {
        1 => operands.remove(0),
        _ => many(operands),
    }
}
