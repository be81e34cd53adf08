//! Who belongs to the group now: agreement after a suspicion. (MSCS §7.7.2)
