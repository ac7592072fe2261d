"""Abbreviations, ordinals and sentence openers.

Lower case; abbreviations without their last dot.
"""

# Cyrillic words are meant.
# ruff: noqa: RUF001

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ABBREVIATIONS = _words(
    # English
    "dr mr mrs ms mx prof messrs mme mlle mt e.g i.e eg cf vs viz approx dept univ asst attn "
    "esq capt cmdr lt sgt cpl adm maj "
    # German
    "z.b d.h u.a u.u i.d.r i.a m.e bzw evtl ggf inkl exkl zzgl vgl sog bspw frl dipl ing geb hrsg "
    "einschl z.t o.g "
    # French
    "mgr ste p.ex c.-à-d env j.-c "
    # Spanish, Portuguese
    "sr sra srta dra dña lic ud uds vd vds avda p.ej ej aprox exmo exma profa "
    # Italian
    "sig sigg sig.ra dott dott.ssa avv geom egr p.es "
    # Dutch
    "dhr mevr mw drs bijv d.w.z o.a m.b.t i.v.m t.a.v "
    # Polish, Czech
    "inż ul św tj np m.in tzw godz např tzn mudr judr "
    # Nordic
    "t.ex bl.a d.v.s f.eks dvs f.n s.k "
    # Turkish
    "sn doç örn mah "
    # Russian, Ukrainian
    "т.е т.к т.н ул просп стр см проф акад напр тел тов "
    # Hindi
    "डॉ प्रो"
)
"""Never end a sentence."""

BEFORE_NUMBERS = _words(
    "apt mind no nos nr nrs p pp pg vol vols fig figs art sec ch chap par eq ver ext tel tél tlf "
    "fax pág pag págs núm num cap abs bd kap ziff abb tab bl blz str n nº n° č s ok ca circa c est "
    "pos kl § д кв г № стр рис тел"
)
"""Do not end a sentence before a number; words of their own elsewhere."""

MAYBE_LAST = _words(
    # English
    "etc inc ltd co corp llc plc jr sr bros st ave blvd rd ln hwy ft oz lb lbs "
    "hr hrs min sec max mph dept est al ph.d phd m.d d.c u.s u.k u.n e.u rev hon pres gov sen "
    "rep gen col jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thur "
    "thurs fri a.d b.c b.c.e c.e p.s no.s fr "
    # German
    "med rer nat phil jur usw usf o.ä u.ä v.chr n.chr str pl tägl mio mrd std okt dez mwst gmbh "
    # French
    "av bd env éd janv févr avr juil déc s.a "
    # Spanish, Portuguese, Italian
    "ee.uu ecc s.p.a s.r.l s.l cía pta ene abr dic "
    # Dutch
    "enz a.u.b e.d e.a jl "
    # Polish, Czech
    "itd itp atd apod al os zł tys "
    # Nordic, Turkish
    "osv m.m m.fl mvh vb "
    # Russian, Ukrainian
    "т.д т.п др пр г гг в вв тыс млн млрд руб коп н.э mm mrt gent rag sok cad им рис гр"
)
"""End a sentence only if the next word is one that sentences begin with."""

HALF_DAYS = _words("a.m p.m am pm")
"""End a sentence before a capital, other than of these words:"""
AFTER_HALF_DAYS = _words(
    "monday tuesday wednesday thursday friday saturday sunday mon tue wed thu fri sat sun "
    "january february march april may june july august september october november december "
    "jan feb mar apr jun jul aug sep sept oct nov dec "
    "est edt cst cdt mst mdt pst pdt et ct mt pt gmt utc bst cet cest eastern central pacific"
)

STARTERS = _words(
    # English
    "a an the this that these those i you he she it we they my your his her its our their "
    "there here what who when where why how which if but and so or as at by for from in on "
    "after before then now also please thank thanks yes no not is are was were do does did can "
    "could will would shall should may let have has had all some most many each both once "
    "while since until although however because just only sorry ok okay well oh hello hi would "
    "i'm i'll i've i'd it's he's she's we're we'll you're you'll they're that's there's here's "
    "what's let's don't everyone nobody nothing something another today tomorrow yesterday "
    "meanwhile instead next first finally "
    # German
    "der die das den dem des ein eine einen einem einer ich du er sie es wir ihr man mein "
    "meine dein unser unsere ihre ihren sein seine dies diese dieser dieses wenn aber und oder "
    "doch denn dann danach da dort hier jetzt heute morgen gestern bitte danke ja nein nicht "
    "ist sind war waren hat haben kann können wird werden soll was wer wann wo warum wie "
    "welche als auch nur so zum zur im am auf aus bei mit nach von vor für seit alle viele "
    "jeder außerdem deshalb trotzdem leider möchten "
    # French
    "le la les l un une des ce cet cette ces je j tu il elle on nous vous ils elles mon ma mes "
    "notre votre leur mais et ou donc car si quand où que qui quoi comment pourquoi est dans "
    "sur avec pour par puis alors ensuite merci oui non bonjour "
    # Spanish, Portuguese, Italian
    "el los las lo una uno unos yo tú ella nosotros ustedes usted ellos su sus mi pero y o si "
    "cuando donde qué quién cómo por para con en de del después luego entonces gracias sí no "
    "hay está este esta ese esa o os as um uma eu você ele ela nós eles mas e se quando onde "
    "isso este obrigado sim não gli i il io lui lei noi voi loro ma ed come perché dove chi "
    "poi grazie questo questa "
    # Dutch, Polish, Czech, Nordic, Turkish
    "het een ik jij hij zij wij maar en of dan dat dit deze er u ja nee to ten ta on ona my wy "
    "oni ale i jak gdzie kiedy proszę tak nie já ty je jsme pak ano ne det den jag han hon vi "
    "ni de men och jeg og så bu şu o ben sen biz siz onlar ama ve evet hayır "
    # Russian, Ukrainian
    "это он она оно они мы вы я ты но и а если когда где как что кто почему потом затем да нет "
    "в на у с по к из за для тогда теперь сейчас спасибо пожалуйста наш ваш це він вона вони "
    "ми ви see call come go take press say tell give ask wait try use keep bring make get "
    "everything anything somebody someone nobody none two three four five six seven eight nine "
    "ten let's goodbye bye good great sure"
)
"""Words that sentences often begin with."""

ELIDED = _words("c d j l m n qu s t i he she it we you they that there what who let")
"""Text before an apostrophe where a sentence begins: *c'est*, *it's*."""

ORDINAL_LANGUAGES = _words("de da nb nn no fi is et lv cs sk pl hu hr sr bs sl tr eu lb fo")
"""Write ordinal numbers with a dot: *der 2. Weltkrieg*."""

BEFORE_ORDINALS = _words("der die des dem den im vom zum zur beim dne")
"""Words of those languages that stand before ordinals and are rare before numbers elsewhere."""

MONTHS = _words(
    "januar jänner februar märz april mai juni juli august september oktober november dezember "
    "januari februari maart mars marts mei maj juni juli augusti augustus oktober december "
    "desember stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października "
    "listopada grudnia ledna února března dubna května června července srpna září října "
    "listopadu prosince tammikuuta ocak şubat mart nisan mayıs haziran temmuz ağustos eylül "
    "ekim kasım aralık"
)
"""Follow the day written with a dot: *3. Mai*."""

PAUSE_BEFORE = _words(
    "and but or because that which who where when while if so although unless until than then "
    "as with for from into about after before during without through between against under "
    "over to at on in by of und aber oder weil dass ob wenn denn sondern damit obwohl bevor "
    "nachdem mit für von aus nach bei seit ohne durch gegen zwischen um et mais ou parce que "
    "qui où quand dont avec pour dans sur sans par depuis pendant y pero o porque quien cuando "
    "donde con para por sin sobre desde hasta según e mas quem onde com sem até perché che chi "
    "quando dove con senza dopo prima en maar omdat dat die waar met voor zonder na и но или "
    "что который которая которые потому чтобы если когда где с для из на в от после"
)
"""A voice may breathe before these words, and must not right after them."""

CLINGING = PAUSE_BEFORE | _words(
    "a an the my your his her its our their this these those no very more dr mr mrs ms prof "
    "der die das den dem des ein eine einen einem einer kein mein dein sein ihr unser herr "
    "frau le la les un une des du de ce cette mon ma mes son sa ses el los las una unos del al "
    "su sus mi il lo gli i di della nel un' o os as um uma do da no na het een de"
)
"""Words that belong to what follows them."""
