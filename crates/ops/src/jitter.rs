//! Spreading retries.

use std::hash::{BuildHasher, RandomState};

/// Another number between 0 and 1 each time. Good enough to spread retries, and for nothing else.
pub fn fraction() -> f64 {
    // Each state has keys of its own.
    let digest = RandomState::new().hash_one(());
    f64::from(u32::try_from(digest >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::fraction;

    #[test]
    fn numbers_differ_and_stay_in_range() {
        let numbers: Vec<f64> = (0..100).map(|_| fraction()).collect();
        assert!(numbers.iter().all(|number| (0.0..=1.0).contains(number)), "{numbers:?}");
        assert!(numbers.iter().any(|number| *number < 0.5) && numbers.iter().any(|number| *number > 0.5));
    }
}
