//! Numbers that a seed determines.

/// `SplitMix64`: small, and good enough to choose faults with.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `low..high`.
    pub(crate) fn between(&mut self, low: i64, high: i64) -> i64 {
        low + i64::try_from(self.next() % (high - low).unsigned_abs()).expect("ranges are small")
    }

    /// True in `percent` of a hundred cases.
    pub(crate) fn chance(&mut self, percent: i64) -> bool {
        self.between(0, 100) < percent
    }

    /// A time span that is mostly short and at times as long as `most`.
    pub(crate) fn span(&mut self, most: i64) -> i64 {
        let limit = match self.between(0, 4) {
            0 => most,
            1 => most / 10,
            _ => most / 100,
        };
        self.between(0, limit.max(2))
    }
}
