//! Who comes in: others to this comb, and this host to theirs.

use super::*;

impl Daemon {
    pub(super) fn let_in(&mut self, knock: Knock) {
        match self.consider(&knock) {
            Ok(Some(first)) => self.admit(&knock, Ok(first)),
            // It was let in before.
            Ok(None) => {}
            Err(None) => self.ask_for_numbers(knock),
            Err(Some(why)) => self.turn_away(&knock, &why),
        }
    }

    /// Numbers for it. `Err(None)`: another host gives these.
    pub(super) fn consider(&mut self, knock: &Knock) -> Result<Option<u32>, Option<String>> {
        let comb =
            self.abroad.federation.comb.as_mut().ok_or_else(|| Some("this host has left".to_owned()))?;
        if let Some(known) = comb.roster.with_key(Key(knock.key)) {
            let _ = knock.answer.send(comb.admitted(&known.name));
            return Ok(None);
        }
        let Join { secret, name, is_name_meant, cells, .. } = &knock.join;
        let secret =
            secret.as_deref().ok_or_else(|| Some("a token is needed: `comb token` makes one".to_owned()))?;
        comb.tokens.check(Instant::now(), secret).map_err(Some)?;
        if !KnownHosts::is_name(name) {
            return Err(Some("that is no name of a host".to_owned()));
        }
        if *is_name_meant && comb.roster.get(name).is_some() {
            return Err(Some(format!(
                "there is a host {name} already: `comb join --as NAME` says another name"
            )));
        }
        if comb.roster.giver().name != comb.roster.own().name {
            return Err(None);
        }
        comb.promise(*cells).map(Some).map_err(Some)
    }

    pub(super) fn ask_for_numbers(&mut self, knock: Knock) {
        let Some(comb) = self.abroad.federation.comb.as_ref() else { return };
        let (giver, count) = (comb.roster.giver().name.clone(), knock.join.cells);
        if comb.peers.get(&giver).is_none_or(|peer| peer.line.is_none()) {
            let why = format!(
                "numbers for its cells are given by host {giver}, which is not reached now \
                 (if it is gone for good, `comb host rm {giver}`)"
            );
            return self.turn_away(&knock, &why);
        }
        self.ask(&giver, None, Asked::Numbers { count }, Purpose::Admission(Box::new(knock)));
    }

    pub(super) fn admit(&mut self, knock: &Knock, first: Result<u32, String>) {
        let Some(comb) = self.abroad.federation.comb.as_mut() else { return };
        match first.and_then(|first| comb.admit(knock, first)) {
            Ok(reception) => {
                let Reception::Admitted { you, .. } = &reception else { return };
                say(format_args!(
                    "host {you} has come in from {}, with {} cells",
                    knock.from, knock.join.cells
                ));
                self.abroad.federation.hosts_changed(&self.server);
                let _ = knock.answer.send(reception);
            }
            Err(why) => self.turn_away(knock, &why),
        }
    }

    pub(super) fn turn_away(&mut self, knock: &Knock, why: &str) {
        // Whoever knocks without end does not fill the log.
        if self.abroad.turned_away.is_none_or(|at| at.elapsed() >= BETWEEN_TURNED_AWAY) {
            self.abroad.turned_away = Some(Instant::now());
            say(format_args!("turned away a host that came from {}: {}", knock.from, plain(why)));
        }
        let _ = knock.answer.send(Reception::Refused(why.to_owned()));
    }
}
