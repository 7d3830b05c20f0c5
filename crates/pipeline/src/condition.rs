//! `if`: whether a step is wanted, decided once when it is created.
//!
//! From loose to tight: `||`, `&&`, one comparison (`==`, `!=`, `=~`, `!~`, `includes`), `!`. What is not known
//! is null, and null is not true.

mod facts;
mod parser;

use std::fmt;

use regex::Regex;
use serde::{Deserialize, Serialize};

pub use facts::Facts;

/// A condition: its text, and what the text means.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Condition {
    text: String,
    expression: Expression,
}

/// A text that is no condition: where, what was expected, what is there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column} of the condition: {reason}")]
pub struct ConditionProblem {
    line: usize,
    column: usize,
    reason: String,
}

#[derive(Debug, Clone, PartialEq)]
enum Expression {
    /// Any of at least two.
    Or(Vec<Self>),
    /// All of at least two.
    And(Vec<Self>),
    Not(Box<Self>),
    Compare(Box<Self>, Operator, Box<Self>),
    Match {
        value: Box<Self>,
        pattern: Pattern,
        negated: bool,
    },
    Literal(Literal),
    /// `build.branch`
    Variable(String),
    /// `build.env("NAME")`, or `env("NAME")`.
    Env(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    Unequal,
    Includes,
}

/// A value that a variable has or a condition names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Literal {
    /// What is not known.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Int(i64),
    /// A text.
    Text(String),
    /// Only variables are lists: the labels of a pull request.
    List(Vec<String>),
}

/// A regular expression as written, ready to be used.
#[derive(Debug, Clone)]
struct Pattern {
    source: String,
    ignore_case: bool,
    regex: Regex,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        (&self.source, self.ignore_case) == (&other.source, other.ignore_case)
    }
}

impl Condition {
    /// Reads a condition.
    pub fn parse(text: &str) -> Result<Self, ConditionProblem> {
        Ok(Self { text: text.to_owned(), expression: parser::parse(text)? })
    }

    /// Whether it holds for these facts; the reason when it does not come down to true or false.
    pub fn holds(&self, facts: &Facts) -> Result<bool, String> {
        truth(&self.expression, facts)
    }
}

impl TryFrom<String> for Condition {
    type Error = ConditionProblem;

    fn try_from(text: String) -> Result<Self, ConditionProblem> {
        Self::parse(&text)
    }
}

impl From<Condition> for String {
    fn from(condition: Condition) -> Self {
        condition.text
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// An operand that must be true or false. Null is false: what is not known does not hold.
fn truth(expression: &Expression, facts: &Facts) -> Result<bool, String> {
    match value(expression, facts)? {
        Literal::Bool(value) => Ok(value),
        Literal::Null => Ok(false),
        other => Err(format!("{expression} is {other}, neither true nor false; compare it with something")),
    }
}

fn value(expression: &Expression, facts: &Facts) -> Result<Literal, String> {
    Ok(match expression {
        Expression::Or(operands) => {
            for operand in operands {
                if truth(operand, facts)? {
                    return Ok(Literal::Bool(true));
                }
            }
            Literal::Bool(false)
        }
        Expression::And(operands) => {
            for operand in operands {
                if !truth(operand, facts)? {
                    return Ok(Literal::Bool(false));
                }
            }
            Literal::Bool(true)
        }
        Expression::Not(operand) => Literal::Bool(!truth(operand, facts)?),
        Expression::Compare(left, operator, right) => {
            let (left, right) = (value(left, facts)?, value(right, facts)?);
            Literal::Bool(match operator {
                Operator::Equal => left == right,
                Operator::Unequal => left != right,
                Operator::Includes => match (left, right) {
                    (Literal::List(items), Literal::Text(wanted)) => items.contains(&wanted),
                    _ => false,
                },
            })
        }
        Expression::Match { value: operand, pattern, negated } => {
            let matches = match value(operand, facts)? {
                Literal::Text(text) => pattern.regex.is_match(&text),
                Literal::Int(number) => pattern.regex.is_match(&number.to_string()),
                _ => false,
            };
            Literal::Bool(matches != *negated)
        }
        Expression::Literal(literal) => literal.clone(),
        Expression::Variable(name) => facts.variable(name),
        Expression::Env(name) => facts.env(name),
    })
}

impl fmt::Display for Expression {
    /// The expression with every operand that is not a single word in parentheses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |f: &mut fmt::Formatter<'_>, operands: &[Self], operator: &str| {
            for (index, operand) in operands.iter().enumerate() {
                if index > 0 {
                    write!(f, " {operator} ")?;
                }
                operand.nested(f)?;
            }
            Ok(())
        };
        match self {
            Self::Or(operands) => joined(f, operands, "||"),
            Self::And(operands) => joined(f, operands, "&&"),
            Self::Not(operand) => {
                f.write_str("!")?;
                operand.nested(f)
            }
            Self::Compare(left, operator, right) => {
                left.nested(f)?;
                write!(f, " {operator} ")?;
                right.nested(f)
            }
            Self::Match { value, pattern, negated } => {
                value.nested(f)?;
                let flag = if pattern.ignore_case { "i" } else { "" };
                write!(f, " {} /{}/{flag}", if *negated { "!~" } else { "=~" }, pattern.source)
            }
            Self::Literal(literal) => write!(f, "{literal}"),
            Self::Variable(name) => f.write_str(name),
            Self::Env(name) => write!(f, "build.env({})", Literal::Text(name.clone())),
        }
    }
}

impl Expression {
    fn nested(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(_) | Self::Variable(_) | Self::Env(_) => write!(f, "{self}"),
            _ => write!(f, "({self})"),
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Equal => "==",
            Self::Unequal => "!=",
            Self::Includes => "includes",
        })
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Text(text) => write!(f, "\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
            Self::List(items) => write!(f, "the list {}", items.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests;
