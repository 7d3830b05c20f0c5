//! Cutting a large file into parts, as clients do it.

/// The most parts of one file.
const MAX_PARTS: u64 = 1000;

/// How many parts a file of `size` bytes is sent in; `None` for a file below `threshold`, sent as one form.
pub(crate) fn count(size: u64, threshold: u64) -> Option<u32> {
    if size < threshold.max(2) {
        return None;
    }
    let part = (threshold / 2).max(1);
    let count = size.div_ceil(part).clamp(2, MAX_PARTS);
    Some(u32::try_from(count).expect("at most MAX_PARTS"))
}

/// The size of one part, counted from 1: nearly equal ones, the remainder spread over the first.
pub(crate) fn size(file: u64, count: u32, part: u32) -> u64 {
    let count = u64::from(count.max(1));
    file / count + u64::from(u64::from(part) <= file % count)
}

/// Where a part begins.
pub(crate) fn offset(file: u64, count: u32, part: u32) -> u64 {
    (1..part).map(|earlier| size(file, count, earlier)).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_files_go_in_one_piece() {
        assert_eq!(count(0, 64), None);
        assert_eq!(count(63, 64), None);
        assert_eq!(count(64, 64), Some(2));
        assert_eq!(count(97, 64), Some(4));
        assert_eq!(count(1, 0), None);
    }

    proptest! {
        #[test]
        fn parts_add_up(file in 0_u64..10_000_000_000, threshold in 0_u64..100_000_000) {
            if let Some(count) = count(file, threshold) {
                let sizes: Vec<u64> = (1..=count).map(|part| size(file, count, part)).collect();
                prop_assert_eq!(sizes.iter().sum::<u64>(), file);
                prop_assert!(sizes.iter().all(|size| *size > 0));
            }
        }
    }
}
