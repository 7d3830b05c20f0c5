//! Who gets how many of too few places.

/// Shares `total` places among those who want so many each. Nobody gets more than they want, no place is left while
/// somebody wants it, and whoever gets less than wanted gets as many as anybody else, but for one: what cannot be
/// divided goes to those who come first.
pub fn shares(total: usize, wanted: &[usize]) -> Vec<usize> {
    let mut shares = vec![0; wanted.len()];
    let mut left = total;
    loop {
        let open: Vec<usize> = (0..wanted.len()).filter(|&one| shares[one] < wanted[one]).collect();
        if open.is_empty() || left == 0 {
            return shares;
        }
        let each = (left / open.len()).max(1);
        for one in open {
            let more = each.min(wanted[one] - shares[one]).min(left);
            shares[one] += more;
            left -= more;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::shares;

    #[rstest]
    #[case(10, &[], &[])]
    #[case(10, &[3, 4], &[3, 4])]
    #[case(10, &[100, 100], &[5, 5])]
    #[case(10, &[2, 100, 100], &[2, 4, 4])]
    #[case(11, &[100, 100], &[6, 5])]
    #[case(1, &[5, 5, 5], &[1, 0, 0])]
    #[case(0, &[5], &[0])]
    fn places_are_shared_evenly(#[case] total: usize, #[case] wanted: &[usize], #[case] expected: &[usize]) {
        assert_eq!(shares(total, wanted), expected);
    }

    proptest! {
        #[test]
        fn shares_are_fair(total in 0_usize..500, wanted in prop::collection::vec(0_usize..200, 0..8)) {
            let shares = shares(total, &wanted);
            prop_assert_eq!(shares.iter().sum::<usize>(), total.min(wanted.iter().sum()));
            for (share, want) in shares.iter().zip(&wanted) {
                prop_assert!(share <= want);
                if share < want {
                    prop_assert!(shares.iter().all(|other| *other <= share + 1), "{:?} of {:?}", shares, wanted);
                }
            }
        }
    }
}
