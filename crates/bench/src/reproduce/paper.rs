//! Which papers there are, and what there is of each before anything is measured.

use std::time::Duration;

use super::{Item, messages};
use crate::cell::measured::Measured as OfCells;
use crate::{
    blizzard_items, cc, disco_items, hive_items, items, kernel, memory, mscs_figures, mscs_items, nt_files,
    pending_items,
};

/// Whose claims are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Paper {
    /// Chapter 2 of the thesis, and SOSP 1995.
    Unet,
    /// Chapter 3 of the thesis.
    Via,
    /// Chapter 4 of the thesis.
    Giganet,
    /// Chapters 5 and 6 of the thesis.
    Quintet,
    /// Chapter 7 of the thesis.
    Mscs,
    /// Chapter 8 of the thesis.
    Galaxy,
    /// Chapter 9 of the thesis.
    NtFiles,
    /// Schoinas and others, ASPLOS 1994.
    Blizzard,
    /// Chapin and others, SOSP 1995.
    Hive,
    /// Bugnion and others, TOCS 1997.
    Disco,
    /// Cheriton and Duda, OSDI 1994.
    CacheKernel,
}

const THESIS: &str = "Vogels, Scalable Cluster Technologies for Mission-Critical Enterprise Computing, 2003";

impl Paper {
    /// In the order in which the report has them: the thesis by its chapters, then the others.
    pub const ALL: [Self; 11] = [
        Self::Unet,
        Self::Via,
        Self::Giganet,
        Self::Quintet,
        Self::Mscs,
        Self::Galaxy,
        Self::NtFiles,
        Self::Blizzard,
        Self::Hive,
        Self::Disco,
        Self::CacheKernel,
    ];

    /// What it is called on the command line, and in each of its items.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unet => "unet",
            Self::Via => "via",
            Self::Giganet => "giganet",
            Self::Quintet => "quintet",
            Self::Mscs => "mscs",
            Self::Galaxy => "galaxy",
            Self::NtFiles => "nt-files",
            Self::Blizzard => "blizzard",
            Self::Hive => "hive",
            Self::Disco => "disco",
            Self::CacheKernel => "cache-kernel",
        }
    }

    /// What it is about.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Unet => "U-Net: endpoints, active messages, what they save over the kernel's way",
            Self::Via => "The Virtual Interface Architecture and the interfaces that it grew out of",
            Self::Giganet => "GigaNet: what a quench to the source does for flows that did no wrong",
            Self::Quintet => "Quintet: replication of components that the developer asks for",
            Self::Mscs => "MSCS: heartbeats, regroup, join and global update",
            Self::Galaxy => "Galaxy: gossip, failure detection and multicast of a farm",
            Self::NtFiles => "How Windows NT uses its files",
            Self::Blizzard => "Blizzard: access control at block grain, and what shared memory costs with it",
            Self::Hive => "Hive: what it costs that cells are apart, and what comes of a failure",
            Self::Disco => "Disco: commodity operating systems on a monitor",
            Self::CacheKernel => "The Cache Kernel: objects of a kernel, cached",
        }
    }

    /// Where it was published.
    pub(crate) fn source(self) -> String {
        let chapter = |which: &str| format!("{THESIS}, {which}");
        match self {
            Self::Unet => chapter("chapter 2; von Eicken and others, SOSP 1995"),
            Self::Via => chapter("chapter 3"),
            Self::Giganet => chapter("chapter 4"),
            Self::Quintet => chapter("chapters 5 and 6"),
            Self::Mscs => chapter("chapter 7"),
            Self::Galaxy => chapter("chapter 8"),
            Self::NtFiles => chapter("chapter 9"),
            Self::Blizzard => "Schoinas and others, ASPLOS 1994".to_owned(),
            Self::Hive => "Chapin and others, SOSP 1995".to_owned(),
            Self::Disco => "Bugnion and others, ACM TOCS 15(4), 1997".to_owned(),
            Self::CacheKernel => "Cheriton and Duda, OSDI 1994".to_owned(),
        }
    }

    /// About how long a run takes, on two cores and beside little else; none while nothing here measures it.
    pub const fn takes(self) -> Option<Duration> {
        let seconds = match self {
            Self::Unet | Self::Via => 25,
            Self::Mscs => 120,
            Self::Blizzard => 900,
            Self::Hive => 300,
            Self::NtFiles => 90,
            Self::CacheKernel => 60,
            Self::Disco => 240,
            Self::Giganet | Self::Quintet | Self::Galaxy => return None,
        };
        Some(Duration::from_secs(seconds))
    }

    /// All its items, as they are while nothing is measured: what holds by construction is not said either before a run.
    pub(crate) fn unmeasured(self) -> Vec<Item> {
        let items = match self {
            Self::Unet => items::unet(&messages::Measured::default()),
            Self::Via => items::via(&messages::Measured::default()),
            Self::Mscs => mscs_items::mscs(&mscs_figures::Measured::default()),
            Self::Blizzard => blizzard_items::blizzard(
                &memory::Measured::default(),
                &cc::Measured::default(),
                &cc::figure_1::Measured::default(),
            ),
            Self::Hive => hive_items::hive(&OfCells::default(), None),
            Self::Giganet => pending_items::giganet(),
            Self::Quintet => pending_items::quintet(),
            Self::Galaxy => pending_items::galaxy(),
            Self::NtFiles => nt_files::items(None),
            Self::Disco => disco_items::unmeasured(),
            Self::CacheKernel => kernel::items(&kernel::Measured::default()),
        };
        items.into_iter().map(|item| item.ours(None)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn every_item_is_of_its_paper_and_is_there_once() {
        for paper in Paper::ALL {
            let items = paper.unmeasured();
            assert!(!items.is_empty(), "{paper:?}");
            let mut names: Vec<&str> = items.iter().map(|item| item.item.as_str()).collect();
            for item in &items {
                assert_eq!(item.paper, paper.name(), "{}", item.item);
            }
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all, "{paper:?} has an item twice");
        }
    }

    #[test]
    fn of_a_paper_that_nothing_measures_every_item_says_what_it_waits_for() {
        for paper in Paper::ALL.into_iter().filter(|paper| paper.takes().is_none()) {
            for item in paper.unmeasured() {
                assert!(item.is_waiting() || item.state() == State::History, "{}: {}", item.item, item.note);
            }
        }
    }
}
